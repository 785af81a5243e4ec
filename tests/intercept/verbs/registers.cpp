// A program over the made-up libibverbs: it registers two buffers in turn, as a library without a
// cache does for each transfer. Prints the calls that reached libibverbs, and `verified` where every answer
// was right.
//
//   registers loop       20 rounds
//   registers measured   the same, after Pinion has begun to measure this process (as MPI_Init would)
//   registers opens      opens the device, and registers nothing
//   registers unseen     is measured, and pins its buffers where the front sees nothing, as devx does
//   registers keeps      registers one buffer, and ends with it
//   registers unplugged  the device disappears after 10 rounds
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "made_up_verbs.h"
#include "pinion/pinion.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;
alignas(4096) char buffers[2][kBytes];

bool failed(const char* what) {
  std::printf("FAILED: %s: %s\n", what, std::strerror(errno));
  return false;
}

/// One registration for one transfer.
bool transfer(ibv_pd* pd, char* buffer, bool expect_loss) {
  ibv_mr* const mr = ibv_reg_mr(pd, buffer, kBytes, IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return expect_loss || failed("register");
  if (mr->addr != buffer || mr->length != kBytes || mr->pd != pd || mr->lkey == 0) return failed("handle");
  return ibv_dereg_mr(mr) == 0 || expect_loss || failed("deregister");
}

bool rounds(ibv_pd* pd, int count, bool expect_loss = false) {
  for (int i = 0; i < count; ++i)
    for (char* const buffer : {buffers[0], buffers[1]})
      if (!transfer(pd, buffer, expect_loss)) return false;
  return true;
}

bool run(const std::string& scenario, ibv_pd* pd) {
  if (scenario == "opens") return true;
  if (scenario == "unseen") return ::mlock(buffers, sizeof buffers) == 0 || failed("mlock");
  if (scenario == "keeps") return ibv_reg_mr(pd, buffers[0], kBytes, IBV_ACCESS_LOCAL_WRITE) != nullptr;
  if (!rounds(pd, 10)) return false;
  const bool unplugged = scenario == "unplugged";
  if (unplugged) pinion::made_up_verbs::unplug();
  return rounds(pd, 10, unplugged);
}

}  // namespace

int main(int, char** arguments) {
  const std::string scenario = arguments[1];
  const bool measured = scenario == "measured" || scenario == "unseen";
  if (measured && pinion_start(nullptr) != 0) return failed(pinion_last_error()), 1;
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  ibv_context* const context = count > 0 ? ibv_open_device(devices[0]) : nullptr;
  if (context == nullptr) {
    std::printf("no device: %s\nverified\n", std::strerror(errno));
    return 0;
  }
  ibv_pd* const pd = ibv_alloc_pd(context);
  if (pd == nullptr) return failed("protection domain"), 1;
  const bool right = run(scenario, pd);
  std::printf("%llu reached the library\n",
              static_cast<unsigned long long>(pinion::made_up_verbs::last_number()));
  if (scenario == "keeps") return std::puts("verified"), right ? 0 : 1;
  if (ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0) return failed("close"), 1;
  ibv_free_device_list(devices);
  if (measured) pinion_stop();
  if (right) std::printf("verified\n");
  return right ? 0 : 1;
}
