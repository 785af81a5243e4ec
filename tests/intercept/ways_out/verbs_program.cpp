// Each function of the verbs front's table leaves by each way out (ways_out.h), for registrations that
// Pinion can answer and for others. The libibverbs is made up (verbs/made_up_verbs.h).
// Usage: ways_out_verbs [NUMBER]. With a number that call meets the end of Pinion, and then ends the process.
#include <sys/mman.h>

#include <cerrno>
#include <string_view>
#include <thread>
#include <vector>

#include "device/verbs/verbs_library.h"
#include "intercept/verbs/made_up_verbs.h"
#include "ways_out.h"

namespace {

namespace made_up = pinion::made_up_verbs;

constexpr std::size_t kBytes = 1 << 20;

/// The objects of the calls, anew for each.
struct Given {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  char* memory = nullptr;
  ibv_mr* mr = nullptr;  ///< the program's at the moment
  ibv_pd* unused_pd = nullptr;
  ibv_context* unused_context = nullptr;
};
Given given;
int g_faults = 0;

bool is_set(const char* option) {
  const char* const options = std::getenv("PINION");
  return options != nullptr && std::strstr(options, option) != nullptr;
}

void fail(const char* what, const char* more) {
  std::fprintf(stderr, "%s: %s\n", what, more);
  ++g_faults;
}

struct Case {
  const char* function;
  bool is_plain;  ///< Pinion may answer it
  void (*prepare)();
  void (*call)();
};

// ---- the calls ----

constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE;
constexpr int kOther = kPlain | IBV_ACCESS_ZERO_BASED;
std::uint64_t iova() { return reinterpret_cast<std::uintptr_t>(given.memory); }

void nothing() {}
template <int access>
void add() {
  given.mr = (ibv_reg_mr)(given.pd, given.memory, kBytes, access);
}
template <std::uint64_t beyond>
void add_iova() {
  given.mr = (ibv_reg_mr_iova)(given.pd, given.memory, kBytes, iova() + beyond, kPlain);
}
template <std::uint64_t beyond>
void add_iova2() {
  given.mr = ibv_reg_mr_iova2(given.pd, given.memory, kBytes, iova() + beyond, kPlain);
}
void drop() {
  ibv_mr* const mr = given.mr;
  if (ibv_dereg_mr(mr) != 0) return fail("ibv_dereg_mr", std::strerror(errno));
  given.mr = nullptr;
}
void change() {
  if (ibv_rereg_mr(given.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, given.memory + kBytes, kBytes, 0) != 0)
    fail("ibv_rereg_mr", std::strerror(errno));
}
void free_domain() {
  if (ibv_dealloc_pd(given.unused_pd) == 0) given.unused_pd = nullptr;
}
void close_device() {
  if (ibv_close_device(given.unused_context) == 0) given.unused_context = nullptr;
}

const Case kCases[] = {
    {"ibv_reg_mr", true, nothing, add<kPlain>},
    {"ibv_reg_mr", false, nothing, add<kOther>},
    {"ibv_reg_mr_iova", true, nothing, add_iova<0>},
    {"ibv_reg_mr_iova", false, nothing, add_iova<kBytes>},
    {"ibv_reg_mr_iova2", true, nothing, add_iova2<0>},
    {"ibv_reg_mr_iova2", false, nothing, add_iova2<kBytes>},
    {"ibv_dereg_mr", true, add<kPlain>, drop},
    {"ibv_dereg_mr", false, add<kOther>, drop},
    {"ibv_rereg_mr", true, add<kPlain>, change},
    {"ibv_rereg_mr", false, add<kOther>, change},
    {"ibv_dealloc_pd", false, nothing, free_domain},
    {"ibv_close_device", false, nothing, close_device},
};

// ---- the ways ----

/// The function that the thread is about to leave; null: none.
thread_local const char* t_armed = nullptr;
void (*g_leave)() = nullptr;

void at_call(const char* function) {
  if (t_armed == nullptr || std::string_view(t_armed) != function) return;
  t_armed = nullptr;
  g_leave();
}

/// The thread that calls arms its own call: others, the helper among them, go on.
ways_out::Call armed(const Case& one) {
  return [&one] {
    t_armed = one.function;
    one.call();
    t_armed = nullptr;
    ::pthread_testcancel();
  };
}

/// Cancellation waits until the call is over where the library registers for Pinion.
void await_cancellation() {
  ways_out::g_inside = true;
  for (int i = 0; i < 200; ++i) ::usleep(1000);
}

struct Way {
  const char* name;
  const char* expected;
  void (*leave)();
  std::string (*outcome)(const ways_out::Call&);
  bool completes;  ///< the library's function goes on
};
const Way kWays[] = {
    {"throw", "caught", ways_out::leave_by_throw, ways_out::by_throw, false},
    {"cancel", "cancelled", await_cancellation, ways_out::by_cancel, false},
    {"jump", "jumped", ways_out::leave_by_jump, ways_out::by_jump, false},
    {"jump and end", "jumped", ways_out::leave_by_jump, ways_out::by_jump_of_a_thread, false},
    {"fork", "child's status 5", ways_out::fork_inside, ways_out::by_fork, true},
};
/// In a process of its own: the front stays off from then on.
const Way kStop{"stop", "returned",
                [] {
                  if (const auto stop = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "pinion_stop")))
                    stop();
                },
                [](const ways_out::Call& call) {
                  call();
                  return std::string("returned");
                },
                true};

// ---- what holds afterwards ----

/// Whether Pinion answers registrations that it can, and by its own registrations.
bool answers() { return is_set("remote-keys=shared"); }

/// Pinion's own registrations are made and ended with signals and cancellation held back, and under its
/// locks: libibverbs itself never jumps, so a jump out of there is left out.
bool is_possible(const Case& one, const Way& way) {
  return !(answers() && one.is_plain && std::strncmp(way.name, "jump", 4) == 0);
}

/// Each thread's registrations are made, are the memory's, and end.
void expect_service(const std::string& name, const char* where) {
  for (const int access : {kPlain, kOther}) {
    ibv_mr* const mr = (ibv_reg_mr)(given.pd, given.memory, kBytes, access);
    if (mr == nullptr) return fail(name.c_str(), where);
    const auto region = made_up::find(mr->lkey);
    if (!region || mr->addr != given.memory || mr->length != kBytes) fail(name.c_str(), "a wrong handle");
    if (ibv_dereg_mr(mr) != 0) fail(name.c_str(), "a handle that is refused");
  }
}

/// Checks, beside Pinion, that the thread's registrations are Pinion's again, and nothing counts against the
/// limit, which holds a few of them.
void expect_lease(const std::string& name) {
  struct pinion_statistics before {
  }, after{};
  if (!answers() || !ways_out::read(before)) return;  // or it was stopped
  expect_service(name, "not registered");
  ways_out::read(after);
  if (after.acquires == before.acquires) fail(name.c_str(), "not served");
  if (after.bounced != before.bounced) fail(name.c_str(), "the limit is used up");
}

void expect_nothing_registered(const std::string& name) {
  // The library knows of leave-pinned's registrations, and of what the helper deregisters a moment later.
  const bool keeps = answers() && !is_set("on-demand");
  for (int i = 0; i < 1000 && !keeps && made_up::held().regions != 0; ++i) ::usleep(10000);
  if (!keeps && made_up::held().regions != 0) fail(name.c_str(), "registrations are left");
}

void expect_order(const std::string& name) {
  ways_out::deeper([&] {
    if (given.mr != nullptr) drop();
    if (given.unused_pd != nullptr) free_domain();
    if (given.unused_context != nullptr) close_device();
    expect_lease(name);
    expect_service(name, "the thread's next call fails");
  });
  std::thread([&] { expect_service(name, "another thread's call fails"); }).join();
  expect_nothing_registered(name);
}

void renew() {
  given.mr = nullptr;
  if (given.unused_pd == nullptr) given.unused_pd = ibv_alloc_pd(given.context);
  if (given.unused_context == nullptr) given.unused_context = ibv_open_device(given.context->device);
}

void leave(const Case& one, const Way& way) {
  const std::string name = std::string(one.function) + (one.is_plain ? " " : " of another kind ") + way.name;
  renew();
  one.prepare();
  bool reached = false;
  static bool* reaches = nullptr;
  reaches = &reached;
  static void (*leaves)() = nullptr;
  leaves = way.leave;
  g_leave = [] {
    *reaches = true;
    leaves();
  };
  const std::string outcome = way.outcome(armed(one));
  if (reached && outcome != way.expected) fail(name.c_str(), outcome.c_str());
  if (!reached && !(answers() && one.is_plain) && !is_set("observe")) fail(name.c_str(), "never called");
  const bool is_changed = given.mr != nullptr && given.mr->addr == given.memory + kBytes;
  if (std::string_view(one.function) == "ibv_rereg_mr" && is_changed != (way.completes || !reached))
    fail(name.c_str(), "the handle is another one");
  expect_order(name);
}

/// The functions that the front stands before are all here.
void expect_all_functions() {
  pinion::RegistrationFunctions functions;
  pinion::for_each_function(functions, [](auto&, const char* name, bool) {
    for (const Case& one : kCases)
      if (std::strcmp(one.function, name) == 0) return;
    fail(name, "has no call here");
  });
}

}  // namespace

int main(int count, char** arguments) {
  int devices = 0;
  given.context = ibv_open_device(ibv_get_device_list(&devices)[0]);
  given.pd = ibv_alloc_pd(given.context);
  given.memory = static_cast<char*>(
      ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  made_up::at_calls(at_call);
  if (count == 2) {
    const Case& one = kCases[std::atoi(arguments[1])];
    leave(one, kStop);
    if (g_faults != 0) return 1;
    renew();
    one.prepare();
    g_leave = ways_out::leave_by_exit;
    armed(one)();
    return answers() || is_set("observe") ? 7 : 1;  // not reached
  }
  expect_all_functions();
  for (const Case& one : kCases)
    for (const Way& way : kWays)
      if (is_possible(one, way)) leave(one, way);
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    const int status = ways_out::status_of_self("ways_out_verbs", std::to_string(i).c_str());
    if (status != 7) fail(kCases[i].function, ("stop and exit: status " + std::to_string(status)).c_str());
  }
  std::printf("%zu calls, %d faults\n", std::size(kCases), g_faults);
  return g_faults != 0;
}
