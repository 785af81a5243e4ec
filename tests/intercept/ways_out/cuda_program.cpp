// Each function of the CUDA front's table leaves by each way out (ways_out.h), called by its linked name and
// as cuGetProcAddress finds it. The driver is a stub (cuda_stub.h). Usage: ways_out_cuda [NAME]. With a name
// that function ends the process.
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <iterator>

#include "cuda_stub.h"
#include "intercept/cuda/shapes.h"
#include "ways_out.h"

namespace {

using namespace pinion::cuda;  // NOLINT(google-build-using-namespace): shapes as the driver has them
using Word = std::uintptr_t;
using Words = std::array<Word, 12>;
using Function = int(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

// ---- the arguments of calls, anew for each ----

constexpr std::size_t kBytes = std::size_t{4} << 20;
constexpr Word kStream = 0x5000;

/// Copied large, so that Pinion may register it. `barred` may be registered no more behind a graph's call.
char* g_memory = nullptr;
char* g_barred = nullptr;
char g_small[4096];

struct Given {
  Copy2D rows{};
  Copy3D layers{};
  BatchCopy batch{};
  Setting setting{};
  NodeParameters node{};
  Word launch[8] = {};
  Word to[2] = {}, from[2] = {}, sizes[2] = {kBytes / 2, kBytes / 2};
  void* pointer = nullptr;
  Word values[2] = {};
  void* value_places[2] = {&values[0], &values[1]};
  int attributes[2] = {kAttributeMemoryType, kAttributeIsManaged};
};
Given given;

template <class T>
Word word(T* pointer) {
  return reinterpret_cast<Word>(pointer);
}

char* fresh(char* old) {
  if (old != nullptr) ::munmap(old, kBytes);
  return static_cast<char*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

template <class Shape>
void fill_rows(Shape& shape, char* host) {
  shape.source.type = 1, shape.source.host = host, shape.source.pitch = 4096;
  shape.destination.type = 2, shape.destination.device = kDevice, shape.destination.pitch = 4096;
  shape.width = 4096, shape.height = kBytes / 4096;
}

void renew() {
  given = Given{};
  fill_rows(given.rows, g_memory);
  fill_rows(given.layers, g_barred);
  given.layers.depth = 1;
  given.batch.source.type = given.batch.destination.type = 1;
  given.batch.source.memory.pointer = word(g_barred), given.batch.destination.memory.pointer = kDevice;
  given.batch.width = kBytes, given.batch.height = given.batch.depth = 1;
  given.setting = {word(g_barred), 0, 0, 1, kBytes, 1};
  given.node.type = kCopyNode;
  given.node.copy.copy = given.layers;
  given.launch[3] = 0, given.launch[4] = kStream;
  given.to[0] = kDevice, given.to[1] = kDevice + kBytes / 2;
  given.from[0] = word(g_barred), given.from[1] = word(g_barred + kBytes / 2);
}

// ---- the table's handlers, as the arguments that they take ----

struct CopyIn {
  static Words words() { return {kDevice, word(g_memory), kBytes}; }
};
struct CopyOut {
  static Words words() { return {word(g_memory), kDevice, kBytes}; }
};
struct CopyInAsync {
  static Words words() { return {kDevice, word(g_memory), kBytes, kStream}; }
};
struct CopyOutAsync {
  static Words words() { return {word(g_memory), kDevice, kBytes, kStream}; }
};
struct CopyUnified : CopyIn {};
struct CopyUnifiedAsync : CopyOutAsync {};
struct BetweenDevices : CopyIn {};
struct BetweenDevicesAsync : CopyInAsync {};
struct BetweenPeers {
  static Words words() { return {kDevice, 0, word(g_memory), 0, kBytes, kStream}; }
};
struct BetweenPeersAsync : BetweenPeers {};
struct IntoArray {
  static Words words() { return {0, 0, word(g_memory), kBytes, kStream}; }
};
struct IntoArrayAsync : IntoArray {};
struct OutOfArray {
  static Words words() { return {word(g_memory), 0, 0, kBytes, kStream}; }
};
struct OutOfArrayAsync : OutOfArray {};
template <class Shape>
struct InRows {
  static Words words() {
    return {std::is_same_v<Shape, Copy2D> ? word(&given.rows) : word(&given.layers), kStream};
  }
};
template <class Shape>
struct InRowsAsync : InRows<Shape> {};
struct Batch {
  static Words words() { return {word(given.to), word(given.from), word(given.sizes), 2, 0, 0, 0, kStream}; }
};
struct BatchWithIndex {
  static Words words() {
    return {word(given.to), word(given.from), word(given.sizes), 2, 0, 0, 0, 0, kStream};
  }
};
struct Batch3D {
  static Words words() { return {1, word(&given.batch), 0, kStream}; }
};
struct Batch3DWithIndex {
  static Words words() { return {1, word(&given.batch), 0, 0, kStream}; }
};
struct WithAttributes {
  static Words words() { return {kDevice, word(g_barred), kBytes, 0, kStream}; }
};
struct WithAttributes3D {
  static Words words() { return {word(&given.batch), 0, kStream}; }
};
template <unsigned element>
struct Set {
  static Words words() { return {word(g_memory), 0, kBytes / element, kStream}; }
};
template <unsigned element>
struct SetAsync : Set<element> {};
template <unsigned element>
struct SetRows {
  static Words words() { return {word(g_memory), 4096, 0, 4096 / element, kBytes / 4096, kStream}; }
};
template <unsigned element>
struct SetRowsAsync : SetRows<element> {};

/// `argument` at that place, and nothing else.
template <std::size_t place>
Words at(Word argument) {
  Words words{};
  words[place] = argument;
  return words;
}
template <std::size_t place, std::size_t>
struct GraphCopy {
  static Words words() { return at<place>(word(&given.layers)); }
};
template <std::size_t place, std::size_t>
struct GraphSet {
  static Words words() { return at<place>(word(&given.setting)); }
};
template <std::size_t place, std::size_t>
struct GraphNode {
  static Words words() { return at<place>(word(&given.node)); }
};
template <std::size_t place, std::size_t>
struct Submission {
  static Words words() { return at<place>(kStream); }
};
template <std::size_t>
struct SubmissionByDefault {
  static Words words() { return {}; }
};
template <std::size_t>
struct SubmissionToAll : SubmissionByDefault<0> {};
struct LaunchWithConfig {
  static Words words() { return {word(given.launch)}; }
};
template <std::size_t>
struct BeginCapture {
  static Words words() { return {kStream}; }
};
struct Initialize : SubmissionByDefault<0> {};
struct DestroyContext {
  static Words words() { return {0x1000}; }
};
struct ReleasePrimary {
  static Words words() { return {}; }
};
struct ResetPrimary : ReleasePrimary {};
struct HostRegister {
  static Words words() { return {word(g_memory), kBytes}; }
};
struct HostUnregister {
  static Words words() { return {word(g_small)}; }
};
struct HostFree : HostUnregister {};
struct HostAllocate {
  static Words words() { return {word(&given.pointer), sizeof g_small}; }
};
struct HostAllocatePlain : HostAllocate {};
struct HostFlags {
  static Words words() { return {word(given.values), word(g_memory)}; }
};
struct HostDevicePointer : HostFlags {};
struct AddressRange {
  static Words words() { return {word(&given.values[0]), word(&given.values[1]), word(g_memory)}; }
};
struct PointerAttribute {
  static Words words() { return {word(given.values), kAttributeMemoryType, word(g_memory)}; }
};
struct PointerAttributes {
  static Words words() { return {2, word(given.attributes), word(given.value_places), word(g_memory)}; }
};
struct ProcAddress {
  static Words words() { return {word("cuMemcpyHtoD"), word(&given.pointer), 4000, 0, 0}; }
};
struct ProcAddressWithStatus : ProcAddress {};

}  // namespace

extern "C" {
#define CALL(symbol, ...) Function symbol;
#include "intercept/cuda/calls.inc"
}

namespace {

struct Row {
  const char* name;
  const char* base;
  int since;
  bool per_thread;
  Function* linked;
  Words (*words)();
};
const Row kRows[] = {
#define CALL(symbol, base, since, per_thread, ...) \
  {#symbol, #base, since, per_thread != 0, &symbol, &__VA_ARGS__::words},
#include "intercept/cuda/calls.inc"
};

/// The row's function by cuGetProcAddress.
Function* found(const Row& row) {
  void* function = nullptr;
  cuGetProcAddress_v2(word(row.base), word(&function), static_cast<Word>(row.since), row.per_thread ? 2 : 0,
                      0, 0, 0, 0, 0, 0, 0, 0);
  return reinterpret_cast<Function*>(function);
}

void call(Function* function, const Words& w) {
  function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11]);
}
void copy_in(const char* memory) { call(cuMemcpyHtoD_v2, {kDevice, word(memory), kBytes}); }

// ---- what is expected afterwards ----

enum class Served { never, registered, staged, either };
/// A function that Pinion does not know was called: copies are registered no more.
bool g_future_has_come = false;
Served how_served() {
  const char* const options = std::getenv("PINION");
  if (::dlsym(RTLD_DEFAULT, "pinion_stop") == nullptr || std::strcmp(options, "off") == 0)
    return Served::never;
  if (g_future_has_come) return Served::staged;
  if (std::strstr(options, "leave-pinned") != nullptr) return Served::registered;
  return std::strstr(options, "cuda=stage") != nullptr ? Served::staged : Served::either;
}

/// Copies until Pinion serves the thread, as it should: at once, but for a context that is being made.
bool is_served() {
  const Served how = how_served();
  for (int i = 0; i < 3000; ++i) {
    const CudaFigures before = cuda_figures();
    copy_in(g_memory);
    const CudaFigures after = cuda_figures();
    const bool registered = after.registered != before.registered, staged = after.staged != before.staged;
    if (how == Served::never) return !registered && !staged;
    if ((registered && how != Served::staged) || (staged && how != Served::registered)) return true;
    if (i > 100) ::usleep(1000);
  }
  return false;
}

int g_faults = 0;
void expect(bool right, const char* name, const char* way, const char* what) {
  if (right) return;
  std::fprintf(stderr, "%s %s: %s\n", name, way, what);
  ++g_faults;
}

/// Checks that nothing is left behind: a lease holds up whoever pins the memory, an entry of the submission
/// gate keeps copies from being served, and an exclusion holds up other threads' work.
void expect_order(const Row& row, const char* way) {
  const char* const name = row.name;
  call(cuMemHostRegister_v2, {word(g_memory), kBytes});
  call(cuMemHostUnregister, {word(g_memory)});
  expect(is_served(), name, way, "not served");
  const ways_out::Call launch = [] { call(cuLaunchKernel, Submission<8, 11>::words()); };
  pthread_t thread;
  pthread_create(&thread, nullptr, ways_out::run, const_cast<ways_out::Call*>(&launch));
  pthread_join(thread, nullptr);
  const CudaFigures figures = cuda_figures();
  // A context that ends takes the events of a ring with it.
  static int events = figures.events;
  if (row.words == &DestroyContext::words || row.words == &ReleasePrimary::words) events = figures.events;
  expect(figures.events == events || how_served() == Served::either, name, way, "leaves events");
  expect(figures.capture_mode == kCaptureGlobal, name, way, "leaves the thread's capture mode changed");
}

// ---- the ways ----

void stop() {
  if (const auto stop = reinterpret_cast<decltype(&pinion_stop)>(::dlsym(RTLD_DEFAULT, "pinion_stop")))
    stop();
}

struct Way {
  const char* name;
  const char* expected;
  void (*leave)();
  std::string (*outcome)(const ways_out::Call&);
};
const Way kWays[] = {
    {"throw", "caught", ways_out::leave_by_throw, ways_out::by_throw},
    {"cancel", "cancelled", ways_out::stay_to_be_cancelled, ways_out::by_cancel},
    {"jump", "jumped", ways_out::leave_by_jump, ways_out::by_jump},
    {"jump and end", "jumped", ways_out::leave_by_jump, ways_out::by_jump_of_a_thread},
    {"fork", "child's status 5", ways_out::fork_inside, ways_out::by_fork},
    {"stop", "returned", stop,
     [](const ways_out::Call& call) {
       call();
       return std::string("returned");
     }},
};

/// The driver's function for the pieces of a staged copy. Those of a function that copies pieces itself count
/// as calls of it.
const char* piece_of(const Row& row) {
  if (how_served() == Served::never) return nullptr;
  const bool in = row.words == &CopyIn::words || row.words == &CopyInAsync::words;
  const bool out = row.words == &CopyOut::words || row.words == &CopyOutAsync::words;
  return in ? "cuMemcpyHtoDAsync_v2" : out ? "cuMemcpyDtoHAsync_v2" : nullptr;
}

/// Which call of the driver leaves: `name`, or the one by so many calls of `other`.
struct Armed {
  const char* name;
  const char* other;
  int calls;
};

/// Calls the function, which leaves. It need not, if it may do without that call of the driver.
void leave(const Row& row, Function* function, const Way& way, const Armed& armed, bool may_return) {
  g_barred = fresh(g_barred);
  renew();
  copy_in(g_memory);
  copy_in(g_barred);
  ways_out_armed = armed.name;
  ways_out_armed_too = armed.other;
  ways_out_calls_too = armed.calls;
  ways_out_leave = way.leave;
  const std::string outcome = way.outcome([&] {
    ways_out_here = true;
    call(function, row.words());
    // A child goes on, too.
    if (ways_out::g_is_child) copy_in(g_memory), call(cuLaunchKernel, Submission<8, 11>::words());
  });
  ways_out_here = false;
  const bool left = ways_out_armed == nullptr;
  ways_out_armed = nullptr;
  expect(left || may_return, row.name, way.name, "never called");
  const std::string what = outcome + (may_return ? std::string(", by ") + armed.other : "");
  expect(!left || outcome == way.expected, row.name, way.name, what.c_str());
  ways_out::deeper([&] { expect_order(row, way.name); });
}

/// Each way out of each function of the driver's.
void leave_the_driver() {
  for (const Row& row : kRows) {
    for (const Way& way : kWays) {
      const Armed armed{row.name, piece_of(row), 3};
      leave(row, row.linked, way, armed, false);
      if (way.leave == ways_out::leave_by_throw) leave(row, found(row), way, armed, false);
    }
  }
}

/// Each way out of a function that Pinion does not know, by both roads to it.
void leave_the_future() {
  const Row row{"cuMemcpyOfTheFuture",         "cuMemcpyOfTheFuture", 0, false, nullptr,
                &SubmissionByDefault<0>::words};
  g_future_has_come = true;
  for (Function* const function :
       {found(row), reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, row.name))}) {
    call(function, row.words());
    for (const Way& way : kWays) leave(row, function, way, {row.name, nullptr, 0}, false);
  }
}

/// Each way out of what Pinion itself asks the driver in some calls.
void leave_questions() {
  for (const Row& row : kRows) {
    bool asks = false;
    for (const char* const name : {"cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyAsync_ptsz",
                                   "cuMemcpy2D_v2", "cuMemHostRegister_v2", "cuStreamBeginCapture"})
      asks |= std::strcmp(row.name, name) == 0;
    if (!asks) continue;
    for (const char* const question :
         {"cuCtxGetCurrent", "cuCtxGetId", "cuStreamIsCapturing", "cuStreamQuery", "cuStreamGetCtx",
          "cuStreamGetFlags", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize"})
      for (const int calls : {1, 2, 5})
        for (const Way& way : kWays)
          if (way.leave != stop) leave(row, row.linked, way, {"", question, calls}, true);
  }
}

}  // namespace

int main(int count, char** arguments) {
  g_memory = fresh(nullptr);
  renew();
  call(cuInit, {});
  if (count == 2) {
    for (const Row& row : kRows) {
      if (std::strcmp(row.name, arguments[1]) != 0) continue;
      ways_out_armed = row.name;
      ways_out_armed_too = piece_of(row);
      ways_out_calls_too = 3;
      ways_out_leave = ways_out::leave_by_exit;
      ways_out_here = true;
      call(row.linked, row.words());
    }
    return 1;
  }
  // A registration is worth its context after so many.
  for (int i = 0; i < 80; ++i) copy_in(g_memory);
  expect_order(kRows[0], "not yet left");
  leave_the_driver();
  leave_questions();
  leave_the_future();
  // A process each: a part of them.
  for (std::size_t i = 0; i < std::size(kRows); i += 9) {
    const int status = ways_out::status_of_self("ways_out_cuda", kRows[i].name);
    if (status == 7) continue;
    std::fprintf(stderr, "%s exit: status %d\n", kRows[i].name, status);
    ++g_faults;
  }
  std::printf("%zu functions, %d faults\n", std::size(kRows), g_faults);
  return g_faults != 0;
}
