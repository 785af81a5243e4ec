// A process of a job for tests/e2e/transfers.sh: joins the others as its launcher says, sends 300,000 bytes
// to the next rank and receives as many from the one before.
//
//   transfer_job PROVIDER [launcher] [again] [mpi LIBRARY] [absent RANK]
//
// launcher: by the launcher's service, also where a directory would do. again: a second endpoint after the
// first. mpi: between MPI_Init and MPI_Finalize of that library. absent: that rank never comes; the others
// wait for two seconds. Prints `verified` at the end; an error is one line, and status 1.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "papers/messages/large_messages.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace {

using namespace pinion;
using namespace pinion::transfer;

constexpr std::size_t kBytes = 300'000;

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "transfer_job: %s\n", message);
  std::_Exit(1);
}
void check(const Error& error) {
  if (error) fail(error.message);
}

char pattern(Peer rank, std::size_t at) { return static_cast<char>(at * 7 + at / 1000 + rank * 41); }

void pass_on(const FabricEndpointOptions& options) {
  FabricEndpointResult made = open_fabric_endpoint(options);
  check(made.error);
  FabricEndpoint& endpoint = *made.endpoint;
  LargeMessages::Result opened = LargeMessages::open(endpoint, {.bounce_below = 16384});
  check(opened.error);
  check(endpoint.connect());
  LargeMessages& messages = *opened.messages;
  const Peer self = endpoint.self(), peers = endpoint.peers(), before = (self + peers - 1) % peers;
  std::vector<char> data(kBytes), memory(kBytes);
  for (std::size_t at = 0; at < kBytes; ++at) data[at] = pattern(self, at);
  Request send, receive;
  messages.receive(before, memory.data(), kBytes, receive);
  messages.send((self + 1) % peers, data.data(), kBytes, send);
  check(messages.wait(receive));
  check(messages.wait(send));
  for (std::size_t at = 0; at < kBytes; ++at)
    if (memory[at] != pattern(before, at)) fail("other contents");
  messages.close();
  check(endpoint.close());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) fail("usage: transfer_job PROVIDER [launcher] [again] [mpi LIBRARY] [absent RANK]");
  FabricEndpointOptions options;
  options.provider = arguments[1];
  check(membership_of_launcher(options.job));
  int times = 1;
  void* mpi = nullptr;
  for (int i = 2; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "launcher") options.job.directory.clear();
    if (word == "again") times = 2;
    if (word == "absent") {
      options.connect_within = 2 * kSecond;
      if (options.job.rank == static_cast<Peer>(std::atoi(arguments[++i]))) return 0;
    }
    if (word == "mpi" && (mpi = ::dlopen(arguments[++i], RTLD_NOW | RTLD_GLOBAL)) == nullptr)
      fail(::dlerror());
  }
  if (mpi && reinterpret_cast<int (*)(int*, char***)>(::dlsym(mpi, "MPI_Init"))(nullptr, nullptr) != 0)
    fail("MPI_Init");
  if (pinion_start("retention=helper") != 0) fail(pinion_last_error());
  for (int i = 0; i < times; ++i) pass_on(options);
  if (pinion_stop() != 0) fail(pinion_last_error());
  if (mpi && reinterpret_cast<int (*)()>(::dlsym(mpi, "MPI_Finalize"))() != 0) fail("MPI_Finalize");
  std::puts("verified");
  return 0;
}
