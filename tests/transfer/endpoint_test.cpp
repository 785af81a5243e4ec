// Endpoints of two processes over the software providers of libfabric that this machine has.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process_stat.h"
#include "pinion/pinion.h"
#include "support/eventually.h"
#include "support/processes.h"
#include "support/stopped.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"
#include "transfer/endpoint/fabric_endpoint.h"
#include "transfer/endpoint/remote_memory.h"

namespace pinion::transfer {
namespace {

using test::Processes;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr unsigned kNote = 3;

struct Counted : Operation {
  void done(const Error& error) override {
    ++calls;
    if (error) ++failures, code = error.code;
  }
  int calls = 0, failures = 0, code = 0;
};

unsigned char pattern(unsigned seed, std::size_t at) {
  return static_cast<unsigned char>(at * 31 + at / 251 + seed * 97);
}

struct Notes : MessageHandler {
  void message(Peer, const void*, std::size_t arrived) override { bytes += arrived; }
  void gone(Peer) override {}
  std::size_t bytes = 0;
};

/// One process of a test: its endpoint, and memory that the other one may read and write.
class Member final : public MessageHandler {
 public:
  Member(const std::string& provider, const std::string& directory, unsigned rank, unsigned peers = 2) {
    ::unsetenv("PINION");
    EXPECT_EQ(pinion_start("retention=leave-pinned"), 0) << pinion_last_error();
    FabricEndpointOptions options;
    options.job = {rank, peers, directory};
    options.provider = provider;
    options.silence = 5 * kSecond;
    FabricEndpointResult made = open_fabric_endpoint(options);
    if (made.error.code == ENODEV || made.error.code == ENOENT || made.error.code == ENOSYS)
      ::_exit(Processes::kSkipped);
    EXPECT_FALSE(made.error) << made.error.message;
    endpoint = std::move(made.endpoint);
    if (!endpoint) ::_exit(1);
    endpoint->handle(kNote, *this);
    endpoint->handle(kNote + 1, own);
    const Error error = endpoint->connect();
    EXPECT_FALSE(error) << error.message;
    if (error) ::_exit(1);
    memory = static_cast<unsigned char*>(
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    keys_.size = sizeof keys_;
    EXPECT_EQ(
        pinion_acquire(endpoint->domain(), memory, 2 * kBytes,
                       PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE, &lease_),
        0)
        << pinion_last_error();
    EXPECT_EQ(pinion_lease_keys(&lease_, &keys_), 0) << pinion_last_error();
  }
  ~Member() {
    EXPECT_EQ(pinion_release(&lease_), 0);
    const Error error = endpoint->close();
    EXPECT_FALSE(error) << error.message;
    endpoint.reset();
    EXPECT_EQ(pinion_stop(), 0);
    ::munmap(memory, 2 * kBytes);
  }

  /// The memory that a process publishes.
  void announce() {
    const RemoteMemory own = remote_memory(keys_, memory);
    tell(&own, sizeof own);
  }
  void meet() {
    announce();
    ASSERT_TRUE(until([&] { return !notes.empty(); }));
    ASSERT_EQ(notes.front().size(), sizeof theirs);
    std::memcpy(&theirs, notes.front().data(), sizeof theirs);
    notes.pop_front();
  }
  /// Both processes are here.
  void barrier() {
    tell("here", 4);
    ASSERT_TRUE(until([&] { return !notes.empty(); }));
    ASSERT_EQ(notes.front(), "here");
    notes.pop_front();
  }
  void tell(const std::string& text) { tell(text.data(), text.size()); }
  void tell(const void* text, std::size_t bytes) {
    const Error error = retried([&] { return endpoint->send(other(), kNote, text, bytes, nullptr); });
    ASSERT_FALSE(error) << error.message;
  }
  /// Fails after a minute.
  bool until(const std::function<bool()>& holds) {
    const Time end = monotonic_now() + 60 * kSecond;
    while (!holds()) {
      if (monotonic_now() > end) return false;
      if (endpoint->progress() == 0) endpoint->wait(10 * kMillisecond);
    }
    return true;
  }
  Error retried(const std::function<Error()>& post) {
    Error error;
    until([&] { return (error = post()).code != EAGAIN; });
    return error;
  }
  LocalMemory mine(std::size_t offset, std::size_t bytes) const {
    return {memory + offset, bytes, keys_.descriptor};
  }
  RemoteMemory of_other(std::size_t offset) const { return {theirs.address + offset, theirs.key}; }
  Peer other() const { return endpoint->peers() - 1 - endpoint->self(); }
  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

  void message(Peer from, const void* payload, std::size_t bytes) override {
    EXPECT_EQ(from, other());
    notes.emplace_back(static_cast<const char*>(payload), bytes);
    // Here, where no thread holds a lock that shm shares with its peers.
    if (notes.back() == "stop") ::raise(SIGSTOP);
  }
  void gone(Peer peer) override { EXPECT_TRUE(lost.insert(peer).second) << "called twice"; }

  std::unique_ptr<FabricEndpoint> endpoint;
  unsigned char* memory = nullptr;
  RemoteMemory theirs;
  std::deque<std::string> notes;
  std::set<Peer> lost;
  Notes own;

 private:
  pinion_lease lease_ = PINION_LEASE_INIT;
  struct pinion_keys keys_ {};
};

class TransferEndpoint : public ::testing::TestWithParam<const char*> {
 protected:
  // libfabric starts sooner with one provider.
  void SetUp() override { ::setenv("FI_PROVIDER", GetParam(), 1); }
  Member member(unsigned rank) const { return Member(GetParam(), directory_.path() + "/job", rank); }
  TemporaryDirectory directory_;
};

/// A thousand puts under way at a time.
void put_a_thousand(Member& self) {
  constexpr std::size_t kCount = 1000;
  for (std::size_t i = 0; i < kBytes; ++i) self.memory[i] = pattern(self.endpoint->self(), i);
  Counted puts;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at = i * 512;
    const Error error = self.retried([&] {
      return self.endpoint->put(self.other(), self.mine(at, 500), self.of_other(kBytes + at), puts);
    });
    ASSERT_FALSE(error) << error.message;
  }
  ASSERT_TRUE(self.until([&] { return puts.calls == int(kCount); }));
  EXPECT_EQ(puts.failures, 0);
  self.barrier();
  for (std::size_t at = 0; at < kCount * 512; ++at) {
    if (at % 512 < 500) {
      ASSERT_EQ(self.memory[kBytes + at], pattern(self.other(), at)) << at;
    }
  }
}

/// A list of as many elements as the provider takes, the last ones first: they arrive, and come back, one
/// after another.
void put_and_get_lists(Member& self) {
  constexpr std::size_t kStride = 5000;
  const std::size_t count = self.endpoint->capabilities().max_elements;
  std::vector<LocalMemory> list;
  std::vector<std::size_t> order;  // of the memory's bytes on the wire
  for (std::size_t i = count; i-- > 0;) {
    const std::size_t bytes = 1 + i * 37 % 400;
    list.push_back(self.mine(i * kStride, bytes));
    for (std::size_t at = 0; at < bytes; ++at) order.push_back(i * kStride + at);
  }
  for (std::size_t i = 0; i < kBytes; ++i) self.memory[i] = pattern(self.endpoint->self(), i);
  std::memset(self.memory + kBytes, 0, order.size() + 1);
  self.barrier();
  Counted ended;
  Error error =
      self.retried([&] { return self.endpoint->put_list(self.other(), list, self.of_other(kBytes), ended); });
  ASSERT_FALSE(error) << error.message;
  ASSERT_TRUE(self.until([&] { return ended.calls == 1; }));
  self.barrier();
  for (std::size_t i = 0; i < order.size(); ++i)
    ASSERT_EQ(self.memory[kBytes + i], pattern(self.other(), order[i])) << i;
  EXPECT_EQ(self.memory[kBytes + order.size()], 0);
  for (const LocalMemory& element : list) std::memset(element.address, 0, element.bytes);
  error =
      self.retried([&] { return self.endpoint->get_list(self.other(), list, self.of_other(kBytes), ended); });
  ASSERT_FALSE(error) << error.message;
  ASSERT_TRUE(self.until([&] { return ended.calls == 2; }));
  EXPECT_EQ(ended.failures, 0);
  for (std::size_t i = 0; i < count * kStride; ++i)
    ASSERT_EQ(self.memory[i], pattern(self.endpoint->self(), i)) << i;
  const std::vector<LocalMemory> more(count + 1, list[0]);
  EXPECT_EQ(self.endpoint->put_list(self.other(), more, self.of_other(0), ended).code, EMSGSIZE);
  self.barrier();
}

/// The last byte of the memory changes while its process computes.
void put_to_one_that_computes(Member& self) {
  if (self.endpoint->self() == 1) {
    volatile unsigned char* const flag = self.memory + 2 * kBytes - 1;
    const Time end = monotonic_now() + 60 * kSecond;
    while (*flag != 1 && monotonic_now() < end) ::usleep(1000);
    EXPECT_EQ(*flag, 1);
  } else {
    self.memory[0] = 1;
    Counted puts;
    for (const std::size_t bytes : {kBytes - 1, std::size_t{1}}) {
      const std::size_t to = bytes == 1 ? 2 * kBytes - 1 : kBytes;
      const Error error =
          self.retried([&] { return self.endpoint->put(1, self.mine(0, bytes), self.of_other(to), puts); });
      ASSERT_FALSE(error) << error.message;
      ASSERT_TRUE(self.until([&] { return puts.calls == (bytes == 1 ? 2 : 1); }));
      EXPECT_EQ(puts.failures, 0);
    }
  }
}

TEST_P(TransferEndpoint, MovesDataBothWaysAtOnce) {
  Processes both(2, [&](unsigned rank) {
    Member self = member(rank);
    self.meet();
    for (std::size_t i = 0; i < kBytes; ++i) self.memory[i] = pattern(rank, i);
    struct {
      std::size_t from, to, bytes;
    } const parts[] = {{0, 0, 1},           {1, 3, 7},          {4095, 4096, 2},    {0, 8192, 4096},
                       {13, 16383, 65537},  {0, 0, 0},          {99, 131072, 8192}, {7, 300001, 262145},
                       {1, 700000, 300000}, {5000, 200000, 100}};
    Counted puts;
    for (const auto& part : parts) {
      const Error error = self.retried([&] {
        return self.endpoint->put(self.other(), self.mine(part.from, part.bytes),
                                  self.of_other(kBytes + part.to), puts);
      });
      ASSERT_FALSE(error) << error.message;
    }
    ASSERT_TRUE(self.until([&] { return puts.calls == int(std::size(parts)); }));
    EXPECT_EQ(puts.failures, 0);
    self.barrier();  // delivered: the other one's put has arrived
    for (const auto& part : parts) {
      if (part.to == 0) continue;  // two parts overlap there
      for (std::size_t i = 0; i < part.bytes; ++i)
        ASSERT_EQ(self.memory[kBytes + part.to + i], pattern(1 - rank, part.from + i))
            << "byte " << i << " of " << part.bytes;
    }
    self.barrier();
    Counted got;
    const Error error = self.retried([&] {
      return self.endpoint->get(self.other(), self.mine(kBytes + 11, kBytes - 77), self.of_other(33), got);
    });
    ASSERT_FALSE(error) << error.message;
    ASSERT_TRUE(self.until([&] { return got.calls == 1; }));
    EXPECT_EQ(got.failures, 0);
    for (std::size_t i = 0; i < kBytes - 77; ++i)
      ASSERT_EQ(self.memory[kBytes + 11 + i], pattern(1 - rank, i + 33)) << i;
    self.barrier();
    put_and_get_lists(self);
    put_a_thousand(self);
    self.memory[2 * kBytes - 1] = 0;
    self.barrier();
    put_to_one_that_computes(self);
    self.barrier();
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

TEST_P(TransferEndpoint, MessagesArriveWholeAndInOrderToTheLast) {
  Processes both(2, [&](unsigned rank) {
    Member self = member(rank);
    constexpr unsigned kCount = 2000;
    const std::size_t most = self.endpoint->capabilities().max_message;
    EXPECT_GE(most, 1000u);
    const auto text = [&](unsigned seed, unsigned i) {
      std::string made(i % 10 == 0 ? most : i % 10 == 1 ? 0 : i % 97, char('a' + (i + seed) % 26));
      return made;
    };
    Counted sent;
    for (unsigned i = 0; i < kCount; ++i) {
      const std::string note = text(rank, i);
      const Error error = self.retried(
          [&] { return self.endpoint->send(self.other(), kNote, note.data(), note.size(), &sent); });
      ASSERT_FALSE(error) << error.message;
    }
    ASSERT_TRUE(self.until([&] { return self.notes.size() >= kCount && sent.calls == int(kCount); }));
    EXPECT_EQ(sent.failures, 0);
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(self.notes[i], text(1 - rank, i)) << i;
    EXPECT_EQ(self.endpoint->send(self.other(), kNote, self.memory, most + 1, nullptr).code, EMSGSIZE);
    EXPECT_EQ(self.endpoint->send(2, kNote, nullptr, 0, nullptr).code, EINVAL);
    self.notes.erase(self.notes.begin(), self.notes.begin() + kCount);
    const Error error =
        self.retried([&] { return self.endpoint->send(rank, kNote + 1, "itself", 6, nullptr); });
    ASSERT_FALSE(error) << error.message;
    EXPECT_TRUE(self.until([&] { return self.own.bytes == 6; }));
    self.barrier();
    if (rank == 1) {
      for (int i = 0; i < 50; ++i) self.tell("bye", 3);
      return;
    }
    EXPECT_TRUE(self.until([&] { return self.lost.contains(1); }));
    EXPECT_EQ(self.notes.size(), 50u);
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "cards are left";
}

TEST_P(TransferEndpoint, AKilledPeerIsAnError) {
  if (std::string(GetParam()) == "shm")
    GTEST_SKIP() << "libfabric's shm waits for ever for a lock that a killed process held";
  Processes both(2, [&](unsigned rank) {
    Member self = member(rank);
    self.meet();
    if (rank == 1) {
      ASSERT_TRUE(self.until([&] { return !self.notes.empty(); }));
      ::kill(::getpid(), SIGKILL);
    }
    self.tell("met", 3);  // so its own address has left
    // Several operations at a time, as long as there is somebody to write to.
    std::deque<Counted> puts;
    Error error;
    ASSERT_TRUE(self.until([&] {
      puts.emplace_back();
      error = self.endpoint->put(1, self.mine(0, kBytes), self.of_other(0), puts.back());
      if (error) puts.pop_back();
      return error && error.code != EAGAIN;
    }));
    EXPECT_EQ(error.code, ECONNRESET) << error.message;
    EXPECT_TRUE(self.until([&] { return self.lost.contains(1); }));
    EXPECT_TRUE(self.until([&] {
      for (const Counted& put : puts)
        if (put.calls == 0) return false;
      return true;
    }));
    for (const Counted& put : puts) {
      EXPECT_EQ(put.calls, 1);
      if (put.failures) {
        EXPECT_EQ(put.code, ECONNRESET);
      }
    }
    EXPECT_EQ(self.endpoint->send(1, kNote, "x", 1, nullptr).code, ECONNRESET);
    EXPECT_EQ(self.endpoint->get(1, self.mine(0, 8), self.of_other(0), puts.front()).code, ECONNRESET);
  });
  both.expect_killed(1);
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

TEST_P(TransferEndpoint, AKilledPeerIsNoticedByOneThatOnlyListens) {
  Processes both(2, [&](unsigned rank) {
    Member self = member(rank);
    self.meet();
    if (rank == 1) {
      self.tell(std::to_string(::getpid()));
      ASSERT_TRUE(self.until([&] { return !self.notes.empty(); }));
      ::kill(::getpid(), SIGKILL);
    }
    ASSERT_TRUE(self.until([&] { return !self.notes.empty(); }));
    self.tell("heard", 5);
    EXPECT_TRUE(self.until([&] { return self.lost.contains(1); }));
    const std::string process = self.notes.front();
    EXPECT_GT(std::atoi(process.c_str()), 0);
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      EXPECT_FALSE(file.path().filename().string().starts_with(process + ":"))
          << "libfabric's shm left " << file.path();
  });
  both.expect_killed(1);
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

/// Lets a process go on.
struct Resume {
  explicit Resume(pid_t which) : process(which) {}
  ~Resume() { ::kill(process, SIGCONT); }
  Resume(const Resume&) = delete;
  Resume& operator=(const Resume&) = delete;
  const pid_t process;
};

/// The peer is stopped, and `self` ends its connection while operations are under way.
void disconnect_stopped(Member& self, pid_t other, bool closes) {
  const Resume resume(other);
  self.tell("stop", 4);
  ASSERT_TRUE(self.until([&] { return test::is_stopped(other); }));
  Counted ended;
  int posted = 0;
  for (int i = 0; i < 8; ++i) {
    posted += !self.endpoint->put(1, self.mine(0, kBytes), self.of_other(0), ended);
    posted += !self.endpoint->send(1, kNote, "text", 4, &ended);
    posted += !self.endpoint->get(1, self.mine(kBytes, kBytes), self.of_other(0), ended);
  }
  EXPECT_GT(posted, 0);
  self.endpoint->disconnect(1);
  EXPECT_EQ(self.endpoint->send(1, kNote, "x", 1, nullptr).code, ECONNRESET);
  EXPECT_TRUE(self.until([&] { return ended.calls == posted; }));
  if (closes) {
    EXPECT_TRUE(self.until([&] { return self.lost.contains(1); }));
  } else {
    EXPECT_FALSE(self.lost.contains(1)) << "it may still write";
  }
  EXPECT_TRUE(test::is_stopped(other));
}

TEST_P(TransferEndpoint, AStoppedPeerIsDisconnected) {
  const bool closes = std::string(GetParam()) != "shm";
  Processes both(2, [&](unsigned rank) {
    Member self = member(rank);
    self.meet();
    if (rank == 0) {
      ASSERT_TRUE(self.until([&] { return !self.notes.empty(); }));
      const pid_t other = std::atoi(self.notes.front().c_str());
      ASSERT_GT(other, 0);
      disconnect_stopped(self, other, closes);
      EXPECT_TRUE(self.until([&] { return self.lost.contains(1); }));
      EXPECT_TRUE(self.until([&] { return process_stat(other).ended; }));
      return;
    }
    self.tell(std::to_string(::getpid()));
    // Once it goes on, it sees the other one as gone.
    EXPECT_TRUE(self.until([&] {
      static_cast<void>(self.endpoint->send(0, kNote, "on", 2, nullptr));
      return self.lost.contains(0);
    }));
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

/// More than 1: what takes longer, too.
int scale() {
  const char* const text = std::getenv("PINION_TEST_SCALE");
  return text ? std::atoi(text) : 1;
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

/// A value of /proc/self/status: threads, or pinned memory in KiB.
long of_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
  return -1;
}

TEST_P(TransferEndpoint, OpeningAndClosingLeavesNothing) {
#ifdef PINION_TEST_OVER_VERBS
  const int times = 200;  // of 0.3 s each, on an emulated processor
#else
  const int times = scale() > 1 ? 1000 : 20;
#endif
  Processes alone(1, [&](unsigned) {
    struct Held {
      std::size_t files = open_files();
      long threads = of_status("Threads"), pinned = of_status("VmPin");
    };
    Held early, late;
    for (int i = 0; i < times; ++i) {
      {
        Member self(GetParam(), directory_.path() + "/job", 0, 1);
        self.tell("itself", 6);
        ASSERT_TRUE(self.until([&] { return self.notes.size() == 1; }));
      }
      late = {};
      if (i == 1) early = late;
    }
    EXPECT_LE(late.files, early.files);
    EXPECT_LE(late.threads, early.threads);
    EXPECT_LE(late.pinned, early.pinned);
  });
  if (alone.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

/// Two network namespaces with a wire between them; gone with it.
class TwoNetworks {
 public:
  TwoNetworks() : name_("pinion-test-" + std::to_string(::getpid())) {
    up_ = run("ip netns add " + name(0)) && run("ip netns add " + name(1)) &&
          run("ip -n " + name(0) + " link add wire type veth peer name wire netns " + name(1));
    for (unsigned rank = 0; up_ && rank < 2; ++rank)
      up_ =
          run("ip -n " + name(rank) + " address add 10.77.0." + std::to_string(rank + 1) + "/24 dev wire") &&
          run("ip -n " + name(rank) + " link set wire up") && run("ip -n " + name(rank) + " link set lo up");
    // The kernel notices a moment later that the wire carries; libfabric offers only interfaces that do.
    for (unsigned rank = 0; up_ && rank < 2; ++rank)
      up_ = test::eventually(
          [&] { return run("ip -n " + name(rank) + " link show wire | grep -q 'state UP'"); });
  }
  ~TwoNetworks() {
    for (unsigned rank = 0; rank < 2; ++rank) run("ip netns delete " + name(rank));
  }
  bool up() const { return up_; }
  void cut() const { EXPECT_TRUE(run("ip -n " + name(0) + " link set wire down")); }
  /// The calling process lives there from now on, and sees processes of its own only: another node.
  void enter(unsigned rank) const {
    const int file = ::open(("/var/run/netns/" + name(rank)).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::setns(file, CLONE_NEWNET), 0);
    ::close(file);
    ASSERT_EQ(::unshare(CLONE_NEWPID), 0);
    const pid_t inside = ::fork();
    if (inside == 0) return;
    int status = 0;
    ::waitpid(inside, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
  }
  std::string name(unsigned rank) const { return name_ + (rank == 0 ? "a" : "b"); }
  const std::string name_;
  bool up_ = false;
};

TEST_P(TransferEndpoint, ReachesAnotherNode) {
  if (std::string(GetParam()) == "shm") GTEST_SKIP() << "ends at the node";
  const TwoNetworks networks;
  if (!networks.up()) GTEST_SKIP() << "no network namespace can be made here (ip netns)";
  const bool cuts = scale() > 1;
  Processes both(2, [&](unsigned rank) {
    networks.enter(rank);
    Member self = member(rank);
    self.meet();
    put_a_thousand(self);
    self.barrier();
    if (!cuts) return;
    // Neither is told of the other's end: silence ends it.
    if (rank == 1) self.tell("through", 7);
    if (rank == 0) {
      ASSERT_TRUE(self.until([&] { return !self.notes.empty(); }));
      networks.cut();
    }
    std::deque<Counted> puts;
    EXPECT_TRUE(self.until([&] {
      puts.emplace_back();
      const Error error = self.endpoint->put(self.other(), self.mine(0, 64), self.of_other(0), puts.back());
      if (error) puts.pop_back();
      return self.lost.contains(self.other());
    }));
    for (const Counted& put : puts) EXPECT_EQ(put.calls, 1);
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

#ifdef PINION_TEST_OVER_VERBS
const auto providers = ::testing::Values("verbs;ofi_rxm");
#else
const auto providers = ::testing::Values("shm", "tcp;ofi_rxm", "sockets");
#endif
INSTANTIATE_TEST_SUITE_P(Providers, TransferEndpoint, providers,
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace pinion::transfer
