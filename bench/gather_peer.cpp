#include "bench/gather_peer.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "bench/api.h"
#include "transfer/endpoint/remote_memory.h"

namespace pinion::cli {

using transfer::FabricEndpoint;
using transfer::Peer;
using transfer::RemoteMemory;

namespace {

constexpr unsigned kKind = 15;

/// One message of the other process, or its end.
struct Message final : transfer::MessageHandler {
  void message(Peer, const void* payload, std::size_t bytes) override {
    if (bytes != sizeof memory) return;
    std::memcpy(&memory, payload, bytes);
    arrived.store(true);
  }
  void gone(Peer) override { ended.store(true); }

  RemoteMemory memory;
  std::atomic<bool> arrived{false}, ended{false};
};

void check(const Error& error) {
  if (error) throw Failure(error.message);
}

/// Pinion and an endpoint of the two.
class Side {
 public:
  Side(unsigned rank, const std::string& provider, const std::string& directory) {
    ::unsetenv("PINION");
    must(pinion_start("retention=leave-pinned"));
    transfer::FabricEndpointOptions options;
    options.job = {rank, 2, directory};
    options.provider = provider;
    transfer::FabricEndpointResult made = open_fabric_endpoint(options);
    check(made.error);
    endpoint = std::move(made.endpoint);
    endpoint->handle(kKind, message);
    check(endpoint->connect());
  }
  ~Side() {
    if (endpoint) static_cast<void>(endpoint->close());
    endpoint.reset();
    static_cast<void>(pinion_stop());
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void wait() {
    if (endpoint->progress() == 0) endpoint->wait(10 * kMillisecond);
  }

  Message message;
  std::unique_ptr<FabricEndpoint> endpoint;
};

/// The forked process: shows its memory, and lives until the other one ends.
void serve(const std::string& provider, const std::string& directory, std::size_t bytes) {
  Side side(1, provider, directory);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure("no memory");
  std::memset(memory, 0, bytes);
  pinion_lease lease;
  must(pinion_acquire(side.endpoint->domain(), memory, bytes,
                      PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE, &lease));
  pinion_keys keys{};
  keys.size = sizeof keys;
  must(pinion_lease_keys(&lease, &keys));
  const RemoteMemory own = transfer::remote_memory(keys, memory);
  while (true) {
    const Error error = side.endpoint->send(0, kKind, &own, sizeof own, nullptr);
    if (error.code != EAGAIN) {
      check(error);
      break;
    }
    side.wait();
  }
  while (!side.message.ended.load()) side.wait();
  must(pinion_release(&lease));
}

class Forked final : public GatherTarget {
 public:
  Forked(const std::string& provider, std::size_t bytes) {
    const std::string directory = directory_.path() + "/job";
    std::fflush(nullptr);
    child_ = ::fork();
    if (child_ < 0) throw Failure("no process");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        serve(provider, directory, bytes);
      } catch (const std::exception&) {
        ::_exit(1);  // the other one reports the same
      }
      ::_exit(0);
    }
    try {
      side_ = std::make_unique<Side>(0, provider, directory);
      while (!side_->message.arrived.load()) {
        if (side_->message.ended.load()) throw Failure("the other process ended");
        side_->wait();
      }
    } catch (...) {
      end();
      throw;
    }
  }
  ~Forked() override { end(); }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  transfer::Endpoint& endpoint() override { return *side_->endpoint; }
  Peer peer() const override { return 1; }
  const RemoteMemory& memory() const override { return side_->message.memory; }

 private:
  void end() {
    side_.reset();
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  const TemporaryLogDirectory directory_;
  pid_t child_ = -1;
  std::unique_ptr<Side> side_;
};

}  // namespace

std::unique_ptr<GatherTarget> make_gather_peer(const std::string& provider, std::size_t bytes) {
  return std::make_unique<Forked>(provider, bytes);
}

}  // namespace pinion::cli
