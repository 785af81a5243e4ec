// Programs' uses of registrations, one scenario a run: `verbs_front_program NAME`. verbs_front_test runs
// it with and without the preload. On a fault it prints the cause and exits with 1; some scenarios print a
// number to be judged.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "few_objects.h"
#include "queue_pair.h"

namespace {

using pinion::LoopedQueuePair;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr int kTarget = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

[[noreturn]] void fail(int line, const char* what) {
  std::printf("line %d: %s (errno %d)\n", line, what, errno);
  std::fflush(stdout);
  std::_Exit(1);
}
#define CHECK(condition) \
  if (!(condition)) fail(__LINE__, #condition)

/// Anonymous memory on ordinary pages: whole hugepages are counted as pinned otherwise.
char* map(void* where = nullptr, std::size_t bytes = kBytes) {
  const int fixed = where != nullptr ? MAP_FIXED_NOREPLACE : 0;
  void* const memory = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(memory);
}

std::size_t pinned_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmPin:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

ibv_mr* registered(ibv_pd* pd, void* memory, std::size_t bytes, int access) {
  ibv_mr* const mr = ibv_reg_mr(pd, memory, bytes, access);
  CHECK(mr != nullptr);
  CHECK(mr->addr == memory && mr->length == bytes && mr->pd == pd && mr->context == pd->context);
  return mr;
}

bool arrives(LoopedQueuePair& pair, char* source, ibv_mr* from, char* target, ibv_mr* to, char value,
             std::size_t bytes = kBytes) {
  std::memset(source, value, bytes);
  std::memset(target, '-', bytes);
  return pair.write(source, from->lkey, target, to->rkey, static_cast<std::uint32_t>(bytes)) ==
             IBV_WC_SUCCESS &&
         std::memcmp(source, target, bytes) == 0;
}

/// Registers for each transfer, as a library without a cache. Prints how many registrations the kernel saw.
void loop() {
  {
    LoopedQueuePair pair;
    char *source = map(), *target = map();
    std::set<std::uint32_t> keys;
    for (int i = 0; i < 20; ++i) {
      ibv_mr* const from = registered(pair.pd(), source + 100, kBytes - 200, IBV_ACCESS_LOCAL_WRITE);
      ibv_mr* const to = registered(pair.pd(), target + 100, kBytes - 200, kTarget);
      CHECK(arrives(pair, source + 100, from, target + 100, to, static_cast<char>('a' + i), kBytes - 200));
      keys.insert(from->lkey);
      keys.insert(to->lkey);
      CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
    }
    std::printf("%zu keys, %zu bytes kept\n", keys.size(), pinned_bytes());
  }
  CHECK(pinned_bytes() == 0);  // its protection domain is gone
}

/// The memory under a key goes, and other memory comes to its address. Prints whether a transfer by the
/// program's then registration arrives: `again` registers anew, as programs do; else the key is kept, as by a
/// cache that missed the event.
void stale(bool again) {
  LoopedQueuePair pair;
  char *source = map(), *target = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* to = registered(pair.pd(), target, kBytes, kTarget);
  CHECK(arrives(pair, source, from, target, to, 'a'));
  if (again) CHECK(ibv_dereg_mr(to) == 0);
  CHECK(munmap(target, kBytes) == 0 && map(target) == target);
  if (again) to = registered(pair.pd(), target, kBytes, kTarget);
  std::puts(arrives(pair, source, from, target, to, 'b') ? "arrives" : "is lost");
}

using Register = ibv_mr* (*)(ibv_pd*, void*, std::size_t, int);
ibv_mr* register_here(ibv_pd* pd, void* memory, std::size_t bytes, int access) {
  return ibv_reg_mr(pd, memory, bytes, access);
}

/// A peer's rights by a key whose owner has deregistered it.
void after_deregistration(Register register_memory) {
  LoopedQueuePair pair;
  char *source = map(), *target = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const to = register_memory(pair.pd(), target, kBytes, kTarget);
  CHECK(to != nullptr);
  const std::uint32_t key = to->rkey;
  CHECK(ibv_dereg_mr(to) == 0);
  const ibv_wc_status status = pair.write(source, from->lkey, target, key, kBytes);
  CHECK(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR);
  std::puts(status == IBV_WC_SUCCESS ? "allowed" : "refused");
}
void after_deregistration_by_a_cache() {
  const std::string self = [] {
    char path[4096] = {};
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    return std::string(path);
  }();
  void* const library = dlopen((self.substr(0, self.rfind('/')) + "/libuct_stand_in.so").c_str(), RTLD_NOW);
  CHECK(library != nullptr);
  after_deregistration(reinterpret_cast<Register>(dlsym(library, "stand_in_register")));
}

/// A key gives peers just its requested rights; and the same memory can have two keys with different rights.
void rights() {
  char *source = map(), *target = map();
  for (const bool allowed : {true, false}) {
    LoopedQueuePair pair;
    ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
    ibv_mr* const all = registered(pair.pd(), target, kBytes, kTarget);
    ibv_mr* const read = registered(pair.pd(), target, kBytes, IBV_ACCESS_REMOTE_READ);
    CHECK(pair.write(source, from->lkey, target, (allowed ? all : read)->rkey, kBytes) ==
          (allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
    for (ibv_mr* mr : {from, all, read}) CHECK(ibv_dereg_mr(mr) == 0);
  }
  LoopedQueuePair pair;
  CHECK(mprotect(target, kBytes, PROT_READ) == 0);
  CHECK(ibv_reg_mr(pair.pd(), target, kBytes, kTarget) == nullptr && errno == EFAULT);
  CHECK(ibv_dereg_mr(registered(pair.pd(), target, kBytes, 0)) == 0);
  errno = 0;
  CHECK(ibv_reg_mr(pair.pd(), target, kBytes, IBV_ACCESS_REMOTE_WRITE) == nullptr && errno == EINVAL);
}

void reregistration() {
  LoopedQueuePair pair;
  char *source = map(), *target = map(), *other = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const to = registered(pair.pd(), target, kBytes, IBV_ACCESS_LOCAL_WRITE);
  CHECK(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kTarget) == 0);
  CHECK(to->addr == target && to->length == kBytes);
  CHECK(arrives(pair, source, from, target, to, 'a'));
  CHECK(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, kBytes / 2, 0) == 0);
  CHECK(to->addr == other && to->length == kBytes / 2);
  CHECK(arrives(pair, source, from, other, to, 'b', kBytes / 2));
  // A refusal leaves it as it was.
  CHECK(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 1, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(ibv_rereg_mr(to, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) == IBV_REREG_MR_ERR_CMD);
  CHECK(arrives(pair, source, from, other, to, 'c', kBytes / 2));
  CHECK(ibv_dereg_mr(to) == 0 && ibv_dereg_mr(from) == 0);
}

/// Changes that libibverbs refuses by itself; the registration stays as it was.
void wrong_reregistration() {
  LoopedQueuePair pair;
  char *source = map(), *target = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const to = registered(pair.pd(), target, kBytes, kTarget);
  const auto refused = [&](int changes, void* address, std::size_t bytes, int access) {
    errno = 0;
    CHECK(ibv_rereg_mr(to, changes, nullptr, address, bytes, access) == IBV_REREG_MR_ERR_INPUT);
    CHECK(errno == EINVAL);
  };
  for (const int others : {0, +IBV_REREG_MR_CHANGE_PD, +IBV_REREG_MR_CHANGE_TRANSLATION})
    refused(others, target, kBytes, kTarget);  // access flags although access stays
  refused(IBV_REREG_MR_FLAGS_SUPPORTED + 1, target, kBytes, 0);
  for (const int more : {0, +IBV_REREG_MR_CHANGE_ACCESS}) {
    refused(IBV_REREG_MR_CHANGE_TRANSLATION | more, nullptr, kBytes, 0);
    refused(IBV_REREG_MR_CHANGE_TRANSLATION | more, target, 0, 0);
  }
  errno = 0;
  CHECK(ibv_rereg_mr(to, 0, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD && errno != 0);
  CHECK(arrives(pair, source, from, target, to, 'a'));
  CHECK(ibv_dereg_mr(to) == 0 && ibv_dereg_mr(from) == 0);
}

/// Registrations that Pinion leaves alone: nothing of them is kept.
void passing() {
  LoopedQueuePair pair;
  char *source = map(), *target = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  const std::size_t before = pinned_bytes();
  ibv_mr* const bound = ibv_reg_mr(pair.pd(), target, kBytes, kTarget | IBV_ACCESS_MW_BIND);
  CHECK(bound != nullptr && ibv_dereg_mr(bound) == 0 && pinned_bytes() == before);
  errno = 0;
  CHECK(ibv_reg_mr(pair.pd(), target, kBytes, kTarget | IBV_ACCESS_ON_DEMAND) == nullptr && errno != 0);
  // Another address for peers, by the two functions that take one.
  constexpr std::uint64_t kElsewhere = std::uint64_t{1} << 40;
  volatile int access = kTarget;  // not known to the compiler: verbs.h then calls ibv_reg_mr_iova2
  for (ibv_mr* to : {ibv_reg_mr_iova(pair.pd(), target, kBytes, kElsewhere, kTarget),
                     ibv_reg_mr_iova(pair.pd(), target, kBytes, kElsewhere, access)}) {
    CHECK(to != nullptr);
    std::memset(source, 'x', kBytes);
    std::memset(target, '-', kBytes);
    CHECK(pair.write(source, from->lkey, reinterpret_cast<char*>(kElsewhere), to->rkey, kBytes) ==
          IBV_WC_SUCCESS);
    CHECK(std::memcmp(source, target, kBytes) == 0);
    CHECK(ibv_dereg_mr(to) == 0);
  }
  CHECK(pinned_bytes() == before);
  CHECK(ibv_dereg_mr(from) == 0);
}

ibv_context* open_device() {
  ibv_device** const devices = ibv_get_device_list(nullptr);
  CHECK(devices != nullptr && devices[0] != nullptr);
  ibv_context* const context = ibv_open_device(devices[0]);
  CHECK(context != nullptr);
  ibv_free_device_list(devices);
  return context;
}

// ---- functions that are looked up ----

/// The places where programs find a function of libibverbs.
struct Source {
  const char* name;
  void* (*find)(const char* function, const char* version);
};
void* libibverbs() {
  static void* const library = dlopen("libibverbs.so.1", RTLD_NOW);
  CHECK(library != nullptr);
  return library;
}
void* program() { return dlopen(nullptr, RTLD_NOW); }
constexpr Source kSources[] = {
    {"linked", nullptr},
    {"dlsym(default)", [](const char* f, const char*) { return dlsym(RTLD_DEFAULT, f); }},
    {"dlsym(next)", [](const char* f, const char*) { return dlsym(RTLD_NEXT, f); }},
    {"dlsym(library)", [](const char* f, const char*) { return dlsym(libibverbs(), f); }},
    {"dlsym(program)", [](const char* f, const char*) { return dlsym(program(), f); }},
    {"dlvsym(default)", [](const char* f, const char* v) { return dlvsym(RTLD_DEFAULT, f, v); }},
    {"dlvsym(next)", [](const char* f, const char* v) { return dlvsym(RTLD_NEXT, f, v); }},
    {"dlvsym(library)", [](const char* f, const char* v) { return dlvsym(libibverbs(), f, v); }},
    {"dlvsym(program)", [](const char* f, const char* v) { return dlvsym(program(), f, v); }},
};

template <class F>
F found(const Source& source, F linked, const char* name, const char* version) {
  if (source.find == nullptr) return linked;
  void* const function = source.find(name, version);
  // A plugin's libraries are visible to the plugin alone, and absent from the program's handle.
  if (function == nullptr && std::strstr(source.name, "(program)") != nullptr) return linked;
  if (function == nullptr) std::printf("%s finds no %s\n", source.name, name);
  CHECK(function != nullptr);
  return reinterpret_cast<F>(function);
}

/// Each function that registers, with each that changes or ends a registration, wherever both are found.
/// Prints how many keys that took.
void mixtures() {
  ibv_context* const context = open_device();
  ibv_pd* const pd = ibv_alloc_pd(context);
  constexpr std::size_t kFew = 65536;
  char* const memory = map();
  const auto iova = reinterpret_cast<std::uint64_t>(memory);
  std::set<std::uint32_t> keys;
  for (const Source& registers : kSources) {
    const auto reg = found(registers, &ibv_reg_mr, "ibv_reg_mr", "IBVERBS_1.1");
    const auto reg_iova = found(registers, &ibv_reg_mr_iova, "ibv_reg_mr_iova", "IBVERBS_1.7");
    const auto reg_iova2 = found(registers, &ibv_reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
    const auto dmabuf = found(registers, &ibv_reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
    CHECK(dmabuf(pd, 0, kFew, iova, -1, IBV_ACCESS_LOCAL_WRITE) == nullptr && errno != 0);
    for (const Source& ends : kSources) {
      const auto dereg = found(ends, &ibv_dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1");
      const auto rereg = found(ends, &ibv_rereg_mr, "ibv_rereg_mr", "IBVERBS_1.1");
      for (ibv_mr* const mr : {reg(pd, memory, kFew, IBV_ACCESS_LOCAL_WRITE),
                               reg_iova(pd, memory, kFew, iova, IBV_ACCESS_LOCAL_WRITE),
                               reg_iova2(pd, memory, kFew, iova, IBV_ACCESS_LOCAL_WRITE)}) {
        CHECK(mr != nullptr && mr->addr == memory && mr->length == kFew && mr->pd == pd);
        keys.insert(mr->lkey);
        CHECK(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory, 0, 0) == IBV_REREG_MR_ERR_INPUT);
        CHECK(dereg(mr) == 0);
      }
    }
  }
  // A library's older versions, if it has any, are its own.
  CHECK(dlvsym(libibverbs(), "ibv_reg_mr", "IBVERBS_1.0") != nullptr);
  CHECK(dlvsym(libibverbs(), "ibv_reg_mr", "IBVERBS_1.0") != dlsym(libibverbs(), "ibv_reg_mr"));
  CHECK(dlvsym(libibverbs(), "ibv_reg_mr", "IBVERBS_1.8") == nullptr && dlerror() != nullptr);
  CHECK(dlsym(libibverbs(), "ibv_reg_nothing") == nullptr && dlerror() != nullptr);
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  std::printf("%zu keys\n", keys.size());
}

void domains() {
  ibv_context* const context = open_device();
  char* const memory = map();
  for (int i = 0; i < 40; ++i) {
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_mr* const mr = registered(pd, memory, kBytes, kTarget);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(pinned_bytes() == 0);
  }
  // More at a time than Pinion has domains.
  std::vector<ibv_pd*> pds;
  for (int i = 0; i < 20; ++i) {
    pds.push_back(ibv_alloc_pd(context));
    CHECK(ibv_dereg_mr(registered(pds.back(), memory, kBytes, IBV_ACCESS_LOCAL_WRITE)) == 0);
  }
  for (ibv_pd* pd : pds) CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(pinned_bytes() == 0);
  // Closing a device ends its registrations, the kept ones included.
  ibv_pd* const left = ibv_alloc_pd(context);
  registered(left, memory, kBytes, kTarget);
  CHECK(ibv_dereg_mr(registered(left, map(), kBytes, kTarget)) == 0);
  CHECK(ibv_close_device(context) == 0);
  CHECK(pinned_bytes() == 0);
  loop();
}

/// Devices that are closed under registrations: everything of them goes.
void closing() {
  char* const memory = map();
  for (int i = 0; i < 40; ++i) {
    ibv_context* const context = open_device();
    ibv_pd* const pd = ibv_alloc_pd(context);
    registered(pd, memory, kBytes, kTarget);
    registered(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(ibv_dereg_mr(registered(pd, map(), kBytes, kTarget)) == 0);
    CHECK(ibv_close_device(context) == 0);
    CHECK(pinned_bytes() == 0);
  }
  loop();
}

/// A child uses memory that its parent has deregistered, below libibverbs' fork-safe mode.
void fork_safe() {
  CHECK(ibv_fork_init() == 0);
  LoopedQueuePair pair;
  char* const memory = map(nullptr, 4 * kBytes);
  for (const std::size_t bytes : {std::size_t{4096}, kBytes, 4 * kBytes}) {
    std::memset(memory, 'p', bytes);
    CHECK(ibv_dereg_mr(registered(pair.pd(), memory, bytes, kTarget)) == 0);
    const pid_t child = fork();
    if (child == 0) {
      for (std::size_t i = 0; i < bytes; i += 4096) CHECK(memory[i] == 'p');
      std::memset(memory, 'c', bytes);
      std::_Exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(memory[0] == 'p');
    CHECK(ibv_dereg_mr(registered(pair.pd(), memory, bytes, kTarget)) == 0);
    std::printf("%zu bytes kept\n", pinned_bytes());
  }
}

/// A child uses what its parent has not registered: beside a registration that overlaps an earlier one, and
/// around one within an earlier one.
void fork_safe_overlap() {
  CHECK(ibv_fork_init() == 0);
  LoopedQueuePair pair;
  char* const memory = map(nullptr, 4 * kBytes);
  std::memset(memory, 'p', 4 * kBytes);
  const auto child_has = [memory](std::size_t begin, std::size_t end) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::size_t i = begin * kBytes; i < end * kBytes; i += 4096) CHECK(memory[i]++ == 'p');
      std::_Exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  };
  CHECK(ibv_dereg_mr(registered(pair.pd(), memory, 2 * kBytes, kTarget)) == 0);
  ibv_mr* const overlapping = registered(pair.pd(), memory + kBytes, 2 * kBytes, kTarget);
  child_has(0, 1);
  child_has(3, 4);
  CHECK(ibv_dereg_mr(overlapping) == 0);
  CHECK(ibv_dereg_mr(registered(pair.pd(), memory, 4 * kBytes, kTarget)) == 0);
  ibv_mr* const inner = registered(pair.pd(), memory + kBytes, kBytes, kTarget);
  child_has(0, 1);
  child_has(2, 4);
  CHECK(ibv_dereg_mr(inner) == 0);
  child_has(0, 4);
}

void forking() {
  LoopedQueuePair pair;
  char *source = map(), *target = map();
  ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const to = registered(pair.pd(), target, kBytes, kTarget);
  const pid_t child = fork();
  if (child == 0) {
    CHECK(ibv_dereg_mr(to) == 0);
    ibv_context* const own = open_device();
    ibv_pd* const pd = ibv_alloc_pd(own);
    CHECK(ibv_dereg_mr(registered(pd, source, kBytes, kTarget)) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(own) == 0);
    std::exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(arrives(pair, source, from, target, to, 'a'));
  CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
}

/// One range from several threads; each uses the key it got.
void threads() {
  LoopedQueuePair pair;
  char* const memory = map();
  std::atomic<std::uint32_t> first{0};
  std::atomic<int> others{0};
  std::vector<std::thread> running;
  for (int t = 0; t < 4; ++t)
    running.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ibv_mr* const mr = registered(pair.pd(), memory, kBytes, kTarget);
        std::uint32_t none = 0;
        if (!first.compare_exchange_strong(none, mr->lkey) && none != mr->lkey) ++others;
        CHECK(ibv_dereg_mr(mr) == 0);
      }
    });
  for (auto& thread : running) thread.join();
  std::printf("%d others\n", others.load());
}

/// Four times the limit (1 MiB) at a time.
void beyond_the_limit() {
  LoopedQueuePair pair;
  std::vector<ibv_mr*> held;
  for (int i = 0; i < 4; ++i) held.push_back(registered(pair.pd(), map(), kBytes, IBV_ACCESS_LOCAL_WRITE));
  CHECK(pinned_bytes() == 4 * kBytes);
  char* const source = static_cast<char*>(held[0]->addr);
  ibv_mr* const to = registered(pair.pd(), map(), kBytes, kTarget);
  CHECK(arrives(pair, source, held[0], static_cast<char*>(to->addr), to, 'a'));
  for (ibv_mr* mr : held) CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_dereg_mr(to) == 0);
  CHECK(pinned_bytes() <= kBytes);
}

/// Kept regions make way for a registration that the system has no room for.
void memlock() {
  LoopedQueuePair pair;
  CHECK(ibv_dereg_mr(registered(pair.pd(), map(), 3 * kBytes / 3, IBV_ACCESS_LOCAL_WRITE)) == 0);
  CHECK(pinned_bytes() == kBytes);
  const rlimit limit{kBytes * 3 / 2, kBytes * 3 / 2};
  CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setuid(65534) == 0);
  ibv_mr* const passes = registered(pair.pd(), map(), kBytes, kTarget | IBV_ACCESS_MW_BIND);
  CHECK(pinned_bytes() == kBytes);
  CHECK(ibv_dereg_mr(passes) == 0);
  CHECK(ibv_dereg_mr(registered(pair.pd(), map(), kBytes, IBV_ACCESS_LOCAL_WRITE)) == 0);
  CHECK(ibv_dereg_mr(registered(pair.pd(), map(), kBytes, IBV_ACCESS_LOCAL_WRITE)) == 0);
  CHECK(ibv_reg_mr(pair.pd(), map(nullptr, 2 * kBytes), 2 * kBytes, IBV_ACCESS_LOCAL_WRITE) == nullptr &&
        errno == ENOMEM);
}

/// Kept regions make way where the device is out of regions. Prints the most regions at one time.
void device_full() {
  CHECK(pinion::have_few_objects(24));
  LoopedQueuePair pair;
  const auto use = [&](int access) {
    char* const memory = map();
    CHECK(ibv_dereg_mr(registered(pair.pd(), memory, kBytes, access)) == 0);
  };
  for (int i = 0; i < 40; ++i) use(IBV_ACCESS_LOCAL_WRITE);
  for (int i = 0; i < 4; ++i) use(kTarget);
  std::vector<ibv_mr*> held;
  while (ibv_mr* const mr = ibv_reg_mr(pair.pd(), map(), kBytes, kTarget)) held.push_back(mr);
  CHECK(errno == EAGAIN);
  std::printf("%zu at a time\n", held.size());
  for (ibv_mr* mr : held) CHECK(ibv_dereg_mr(mr) == 0);
  use(IBV_ACCESS_LOCAL_WRITE);
}

/// Blocks of malloc, registered for each transfer. Prints how many keys peers got, and how many were local.
void blocks() {
  LoopedQueuePair pair;
  std::set<std::uint32_t> local, remote;
  for (int i = 0; i < 8; ++i) {
    char* const source = static_cast<char*>(std::malloc(kBytes));
    char* const target = static_cast<char*>(std::malloc(kBytes));
    CHECK(source != nullptr && target != nullptr);
    ibv_mr* const from = registered(pair.pd(), source, kBytes, IBV_ACCESS_LOCAL_WRITE);
    ibv_mr* const to = registered(pair.pd(), target, kBytes, kTarget);
    CHECK(arrives(pair, source, from, target, to, static_cast<char>('a' + i)));
    local.insert(from->lkey);
    remote.insert(to->rkey);
    CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
    if (i % 2 == 0) std::free(source);  // the next blocks lie elsewhere
    std::free(target);
  }
  std::printf("%zu local, %zu remote\n", local.size(), remote.size());
}

/// Registers blocks of one hugepage, and moves data between them. Prints how many the library took, and with
/// how many keys.
void hugepage_parts() {
  std::ofstream("/proc/sys/vm/nr_hugepages") << 4 << std::flush;
  constexpr std::size_t kHugepage = std::size_t{2} << 20, kBlock = std::size_t{64} << 10;
  void* const memory =
      mmap(nullptr, kHugepage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  CHECK(memory != MAP_FAILED);
  LoopedQueuePair pair;
  std::vector<char*> blocks;
  std::vector<ibv_mr*> registrations;
  std::set<std::uint32_t> keys;
  for (const std::size_t number : {1, 9, 30}) {
    char* const block = static_cast<char*>(memory) + number * kBlock + 100;
    ibv_mr* const mr = ibv_reg_mr(pair.pd(), block, kBlock, kTarget);
    if (mr == nullptr) continue;
    CHECK(mr->addr == block && mr->length == kBlock);
    blocks.push_back(block);
    registrations.push_back(mr);
    keys.insert(mr->lkey);
  }
  for (std::size_t i = 1; i < blocks.size(); ++i)
    CHECK(arrives(pair, blocks[0], registrations[0], blocks[i], registrations[i], 'a', kBlock));
  for (ibv_mr* mr : registrations) CHECK(ibv_dereg_mr(mr) == 0);
  std::printf("%zu registered, %zu keys\n", registrations.size(), keys.size());
}

/// Ends like programs that do not tidy up.
void leaving() {
  auto* const pair = new LoopedQueuePair;
  registered(pair->pd(), map(), kBytes, kTarget);
  CHECK(ibv_dereg_mr(registered(pair->pd(), map(), kBytes, kTarget)) == 0);
  static ibv_mr* const late = registered(pair->pd(), map(), kBytes, IBV_ACCESS_LOCAL_WRITE);
  std::atexit([] { CHECK(ibv_dereg_mr(late) == 0); });
}

/// Asked for by the environment, in a constructor of the program.
[[gnu::constructor]] void before_main() {
  const char* const asked = std::getenv("BEFORE_MAIN");
  if (asked != nullptr) loop();
}

}  // namespace

extern "C" int main(int, char** arguments) {
  const std::string name = arguments[1];
  if (name == "loop") loop();
  if (name == "stale") stale(true);
  if (name == "stale-cache") stale(false);
  if (name == "after") after_deregistration(register_here);
  if (name == "after-by-cache") after_deregistration_by_a_cache();
  if (name == "rights") rights();
  if (name == "reregistration") reregistration();
  if (name == "wrong-reregistration") wrong_reregistration();
  if (name == "passing") passing();
  if (name == "mixtures") mixtures();
  if (name == "domains") domains();
  if (name == "closing") closing();
  if (name == "fork") forking();
  if (name == "fork-safe") fork_safe();
  if (name == "fork-safe-overlap") fork_safe_overlap();
  if (name == "threads") threads();
  if (name == "limit") beyond_the_limit();
  if (name == "memlock") memlock();
  if (name == "device-full") device_full();
  if (name == "blocks") blocks();
  if (name == "hugepage-parts") hugepage_parts();
  if (name == "leaving") leaving();
  std::puts("done");
  return 0;
}
