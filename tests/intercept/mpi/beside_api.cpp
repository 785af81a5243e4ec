// An MPI program whose library uses Pinion's C API by itself: one engine for both, in either order of start
// and end. beside_api first|last sets the place of the library's part: around MPI's, or within;
// `alone`, that the front is not there for it. Two ranks.
#include <cstring>

#include "check.h"
#include "pinion/pinion.h"

namespace {

pinion_domain* domain = nullptr;
int buffer[50000];

void start() { CHECK(pinion_start(nullptr) == 0 && pinion_domain_open("emulated", "none", &domain) == 0); }
void stop() { CHECK(pinion_domain_close(domain) == 0 && pinion_stop() == 0); }

void use() {
  pinion_lease lease = PINION_LEASE_INIT;
  CHECK(pinion_acquire(domain, buffer, sizeof buffer, PINION_ACCESS_WRITE, &lease) == 0);
  CHECK(pinion_release(&lease) == 0);
}

void exchange() {
  const int me = world_rank(), other = 1 - me;
  const auto out = message(50000, me, 1);
  MPI_Sendrecv(out.data(), 50000, MPI_INT, other, 1, buffer, 50000, MPI_INT, other, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  CHECK(holds(buffer, 50000, other, 1));
}

}  // namespace

int main(int argc, char** argv) {
  const bool first = argc > 1 && std::strcmp(argv[1], "first") == 0;
  if (first) start();
  MPI_Init(&argc, &argv);
  exchange();
  if (!first) start();
  for (int round = 0; round < 5; ++round) {
    use();
    exchange();
  }
  struct pinion_statistics statistics {};  // a function has the same name
  statistics.size = sizeof statistics;
  CHECK(pinion_statistics(nullptr, &statistics) == 0);
  // With the front before MPI: 6 exchanges of two buffers, and 5 leases of the library's own.
  const bool alone = argc > 2 && std::strcmp(argv[2], "alone") == 0;
  if (std::getenv("LD_PRELOAD")) CHECK(statistics.acquires == (alone ? 5 : 17));
  if (!first) stop();
  const int status = finish();
  if (first) {
    use();  // MPI is over, the library is not
    stop();
  }
  return g_failures ? EXIT_FAILURE : status;
}
