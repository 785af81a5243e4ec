#include "made_up_verbs.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/coverage.h"
#include "base/range.h"

#ifndef MADE_UP_FIRST_KEY  // a second copy has other keys
#define MADE_UP_FIRST_KEY 0x100
#endif

namespace pinion::made_up_verbs {

namespace {

constexpr int kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                             IBV_ACCESS_RELAXED_ORDERING;

struct State {
  std::mutex mutex;
  std::unordered_map<const ibv_mr*, Region> regions;
  std::unordered_map<std::uint32_t, const ibv_mr*> keys;
  std::map<const ibv_pd*, std::size_t> domains;  ///< live, with their regions
  Held held, peak;
  Coverage registered;
  std::uint64_t number = 0, strangers = 0;
  std::uint32_t next_key = MADE_UP_FIRST_KEY;
  ibv_device device{};
  ibv_device* list[2] = {&device, nullptr};
  char* fresh = nullptr;  ///< memory that was never handed out
  std::size_t fresh_bytes = 0;
};
State& state() {
  static State& all = []() -> State& {
    // A forked child finds the mutex free.
    ::pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                     [] { state().mutex.unlock(); });
    return *new State;
  }();
  return all;
}
std::atomic<void (*)(const char*)> g_before{nullptr};
std::atomic<bool> g_unplugged{false};
std::atomic<std::size_t> g_most_regions{SIZE_MAX};

/// Kept for ever, so each address is used once. Under the mutex.
template <class T>
T* make() {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  State& s = state();
  constexpr std::size_t bytes = (sizeof(T) + 63) / 64 * 64;
  if (s.fresh_bytes < bytes) {
    void* const memory = ::mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    s.fresh = static_cast<char*>(memory);
    s.fresh_bytes = kChunk;
  }
  s.fresh_bytes -= bytes;
  return new (s.fresh + s.fresh_bytes) T{};
}

void begins(const char* function) {
  if (const auto before = g_before.load()) before(function);
}

ibv_mr* refuse(int error) {
  errno = error;
  return nullptr;
}

/// Under the mutex.
bool is_valid(State& s, const ibv_pd* pd, std::size_t bytes, int access) {
  constexpr int kNeedsLocal = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  return s.domains.contains(pd) && bytes != 0 && (access & ~kKnownAccess) == 0 &&
         ((access & kNeedsLocal) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

/// Under the mutex.
void fill(State& s, ibv_mr* mr, ibv_pd* pd, void* address, std::size_t bytes, int access) {
  // Constant from its registration on: any thread may read it, as libibverbs does to find its provider.
  if (mr->context != pd->context) mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = bytes;
  mr->lkey = mr->rkey = mr->handle = s.next_key++;
  s.regions[mr] = {reinterpret_cast<std::uintptr_t>(address), bytes, access, pd, ++s.number};
  s.keys[mr->lkey] = mr;
  ++s.domains[pd];
  ++s.held.regions;
  s.held.bytes += s.registered.add(Range::of(address, bytes).to_pages());
  s.peak = {std::max(s.peak.regions, s.held.regions), std::max(s.peak.bytes, s.held.bytes)};
}

ibv_mr* add(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if (g_unplugged) return refuse(EIO);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!is_valid(s, pd, bytes, access)) return refuse(EINVAL);
  if (s.held.regions >= g_most_regions) return refuse(ENOMEM);
  auto* const mr = make<ibv_mr>();
  fill(s, mr, pd, address, bytes, access);
  return mr;
}

/// Under the mutex.
void drop(State& s, std::unordered_map<const ibv_mr*, Region>::iterator found) {
  s.keys.erase(found->first->lkey);
  --s.held.regions;
  const Region& region = found->second;
  s.held.bytes -= s.registered.remove(Range{region.begin, region.begin + region.bytes}.to_pages());
  if (const auto domain = s.domains.find(region.pd); domain != s.domains.end()) --domain->second;
  s.regions.erase(found);
}

}  // namespace

std::optional<Region> find(std::uint32_t key) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.keys.find(key);
  if (found == s.keys.end()) return std::nullopt;
  return s.regions[found->second];
}

std::size_t live_regions(const ibv_pd* pd) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.domains.find(pd);
  return found == s.domains.end() ? 0 : found->second;
}

Held held() {
  const std::lock_guard lock(state().mutex);
  return state().held;
}

Held take_peak() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const Held peak = s.peak;
  s.peak = s.held;
  return peak;
}

std::uint64_t last_number() {
  const std::lock_guard lock(state().mutex);
  return state().number;
}

std::uint64_t strangers() {
  const std::lock_guard lock(state().mutex);
  return state().strangers;
}

void unplug() { g_unplugged = true; }

void limit_regions(std::size_t most) { g_most_regions = most; }

void at_calls(void (*before)(const char*)) { g_before.store(before); }

}  // namespace pinion::made_up_verbs

using namespace pinion::made_up_verbs;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 1;
  return state().list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device*) { return "made0"; }

ibv_context* ibv_open_device(ibv_device* device) {
  if (std::getenv("MADE_UP_REFUSES") != nullptr) {
    errno = EACCES;
    return nullptr;
  }
  const std::lock_guard lock(state().mutex);
  auto* const context = make<ibv_context>();
  context->device = device;
  if (std::getenv("MADE_UP_OPERATIONS") != nullptr)
    context->ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return EOPNOTSUPP; };
  return context;
}
/// The kernel deregisters the rest.
int ibv_close_device(ibv_context* context) {
  begins("ibv_close_device");
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (auto it = s.regions.begin(); it != s.regions.end();) {
    const auto next = std::next(it);
    if (it->second.pd->context == context) drop(s, it);
    it = next;
  }
  std::erase_if(s.domains, [context](const auto& entry) { return entry.first->context == context; });
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  if (g_unplugged) return EIO;
  *attributes = {};
  attributes->phys_port_cnt = 1;
  attributes->max_mr = 1 << 20;
  attributes->max_mr_size = ~std::uint64_t{0};
  attributes->page_size_cap = 4096;
  return 0;
}
int(ibv_query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr* attributes) {
  reinterpret_cast<ibv_port_attr*>(attributes)->state = IBV_PORT_ACTIVE;
  return g_unplugged ? EIO : 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  auto* const pd = make<ibv_pd>();
  pd->context = context;
  pd->handle = s.next_key++;
  s.domains[pd] = 0;
  return pd;
}
int ibv_dealloc_pd(ibv_pd* pd) {
  begins("ibv_dealloc_pd");
  if (g_unplugged) return 0;  // the kernel has let everything go
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.domains.find(pd);
  if (found == s.domains.end()) return EINVAL;
  if (found->second != 0) return EBUSY;
  s.domains.erase(found);
  return 0;
}

ibv_mr*(ibv_reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  begins("ibv_reg_mr");
  return add(pd, address, bytes, access);
}
ibv_mr*(ibv_reg_mr_iova)(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t, int access) {
  begins("ibv_reg_mr_iova");
  return add(pd, address, bytes, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t, unsigned access) {
  begins("ibv_reg_mr_iova2");
  return add(pd, address, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  begins("ibv_dereg_mr");
  if (g_unplugged) return EIO;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.regions.find(mr);
  if (found == s.regions.end()) {
    ++s.strangers;
    return EINVAL;
  }
  drop(s, found);
  return 0;
}
int ibv_rereg_mr(ibv_mr* mr, int changes, ibv_pd* pd, void* address, std::size_t bytes, int access) {
  begins("ibv_rereg_mr");
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.regions.find(mr);
  if (found == s.regions.end() || changes == 0 ||
      (access != 0 && (changes & IBV_REREG_MR_CHANGE_ACCESS) == 0)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const Region before = found->second;
  if ((changes & IBV_REREG_MR_CHANGE_PD) == 0) pd = before.pd;
  if ((changes & IBV_REREG_MR_CHANGE_ACCESS) == 0) access = before.access;
  if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) {
    address = reinterpret_cast<void*>(before.begin);
    bytes = before.bytes;
  }
  if (!is_valid(s, pd, bytes, access)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_CMD;
  }
  drop(s, found);
  fill(s, mr, pd, address, bytes, access);
  return 0;
}
}
