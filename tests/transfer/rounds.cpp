// Messages of 1 MiB between two endpoints joined in memory, by one thread: for
// tests/e2e/transfer_instructions.sh, which counts the instructions of rounds().
//
//   transfer_rounds registered|RETENTION ROUNDS
//
// registered: plain gets between memory that is registered throughout. Otherwise messages by rendezvous,
// whose leases begin and end with each; the pages and the made-up network are the same.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "papers/messages/large_messages.h"
#include "pinion/pinion.h"
#include "support/made_network.h"
#include "transfer/endpoint/remote_memory.h"

namespace {

using namespace pinion;
using namespace pinion::transfer;

constexpr std::size_t kBytes = std::size_t{1} << 20;

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "transfer_rounds: %s\n", message);
  std::exit(1);
}

[[gnu::noinline]] void rounds(long count, const std::function<void()>& one) {
  for (long i = 0; i < count; ++i) one();
}

struct Registered {
  Registered(pinion_domain* domain, std::vector<char>& memory) {
    keys.size = sizeof keys;
    if (pinion_acquire(domain, memory.data(), kBytes, PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ,
                       &lease) ||
        pinion_lease_keys(&lease, &keys))
      fail(pinion_last_error());
  }
  ~Registered() {
    if (pinion_release(&lease)) fail(pinion_last_error());
  }
  pinion_lease lease = PINION_LEASE_INIT;
  pinion_keys keys{};
};

struct Done final : Operation {
  void done(const Error& error) override {
    if (error) fail(error.message);
    ended = true;
  }
  bool ended = false;
};

void get_registered(test::MadeNetwork& network, std::vector<char>& from, std::vector<char>& to, long count) {
  const Registered source(network[0].domain(), from), target(network[1].domain(), to);
  rounds(count, [&] {
    Done done;
    const LocalMemory local{to.data(), kBytes, target.keys.descriptor};
    if (const Error error = network[1].get(0, local, remote_memory(source.keys, from.data()), done))
      fail(error.message);
    while (!done.ended) network[1].progress();
  });
}

void send_messages(test::MadeNetwork& network, std::vector<char>& from, std::vector<char>& to, long count) {
  std::vector<std::unique_ptr<LargeMessages>> messages;
  for (Peer peer = 0; peer < 2; ++peer) {
    LargeMessages::Result opened = LargeMessages::open(network[peer], {.protocol = Protocol::rendezvous});
    if (opened.error) fail(opened.error.message);
    messages.push_back(std::move(opened.messages));
  }
  rounds(count, [&] {
    Request send, receive;
    messages[1]->receive(0, to.data(), kBytes, receive);
    messages[0]->send(1, from.data(), kBytes, send);
    while (!messages[1]->test(receive) || !messages[0]->test(send)) {
    }
    if (receive.error() || send.error()) fail(receive.error().message);
  });
  for (const auto& each : messages) each->close();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) fail("usage: transfer_rounds registered|RETENTION ROUNDS");
  const std::string how = arguments[1];
  const std::string retention = how == "registered" ? "leave-pinned" : how;
  // Valgrind takes neither code patched at run time nor userfaultfd.
  if (pinion_start(("monitor=brackets,retention=" + retention).c_str())) fail(pinion_last_error());
  {
    test::MadeNetwork network(2);
    std::vector<char> from(kBytes, 'f'), to(kBytes, 't');
    (how == "registered" ? get_registered : send_messages)(network, from, to, std::atol(arguments[2]));
    if (from != to) fail("other contents");
    std::printf("%s: %zu gets\n", how.c_str(), network.gets());
  }
  if (pinion_stop()) fail(pinion_last_error());
  return 0;
}
