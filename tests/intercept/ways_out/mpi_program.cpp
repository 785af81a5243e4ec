// Each function of the MPI front's table leaves by each way out (ways_out.h). The MPI is a stub (stub.h).
// Usage: ways_out_mpi [NAME]. With a name that function ends the process.
#include <sys/mman.h>

#include <vector>

#include "stub.h"
#include "ways_out.h"

namespace {

using Comm = int;
using Datatype = int;
using Errhandler = int;
using File = void*;
using Info = int;
using Message = int;
using Op = int;
using Request = int;
using Session = int;
using Win = int;
using Aint = long;
using Count = long long;
using Offset = long long;
struct Status {
  int words[5];
};

constexpr int kBytes = 1 << 20;
constexpr Datatype kByte = 0x4c00010d;
constexpr Comm kWorld = 0x44000000;
constexpr int kNoRequest = 0x2c000000;
constexpr Op kSum = 0x58000003;
constexpr Win kWindow = static_cast<Win>(0xa0000000);
int g_file;
const File kFile = &g_file;

/// The arguments of calls, anew for each.
struct Given {
  void* buffers[3];
  void* base = nullptr;
  int counts_int[2] = {kBytes, 0}, offsets_int[2] = {};
  Aint counts_long_words[2] = {kBytes, 0}, offsets_long[2] = {};
  const Count* counts_long = reinterpret_cast<const Count*>(counts_long_words);
  Datatype types[2] = {kByte, kByte};
  Datatype type = 0x4c0001ff;
  Comm comm = static_cast<Comm>(0x84000005);
  Win window = kWindow;
  Request request = static_cast<Request>(0x98000001);
  Message message = static_cast<Message>(0x98000002);
  Session session = 1;
  Status status{};
  int number = 0;
  char** arguments = nullptr;
};
Given given;

}  // namespace

extern "C" {
#define CALL(name, parameters, arguments) int name parameters;
#include "mpi_calls.inc"
#undef CALL
}

namespace {

struct Function {
  const char* name;
  void (*call)();
};
const Function kFunctions[] = {
#define CALL(name, parameters, arguments) {#name, [] { name arguments; }},
#include "mpi_calls.inc"
#undef CALL
};

void renew() {
  static char* const memory = static_cast<char*>(
      ::mmap(nullptr, 3 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  given = Given{{memory, memory + kBytes, memory + 2 * kBytes}};
  *static_cast<void**>(given.buffers[2]) = nullptr;
  given.base = given.buffers[2];
}

int g_faults = 0;

/// Checks, beside Pinion, that a large send counts again and leaves nothing leased where nothing is kept.
void expect_order(const char* name, const char* way) {
  struct pinion_statistics before {
  }, after{};
  if (!ways_out::read(before)) return;
  MPI_Send(given.buffers[0], kBytes, kByte, 0, 0, kWorld);
  MPI_Wait(&given.request, &given.status);
  ways_out::read(after);
  const bool served = after.acquires > before.acquires;
  static const bool keeps = std::strstr(std::getenv("PINION"), "on-demand") == nullptr;
  // The helper deregisters some, a moment later.
  for (int i = 0; i < 1000 && !keeps && after.registered_bytes != 0; ++i) {
    ::usleep(10000);
    ways_out::read(after);
  }
  if (served && (keeps || after.registered_bytes == 0)) return;
  std::fprintf(stderr, "%s %s: %s, %llu bytes are registered\n", name, way, served ? "served" : "not served",
               static_cast<unsigned long long>(after.registered_bytes));
  ++g_faults;
}

/// Whether the call ends a run of Pinion's: then one begins anew.
bool ends_run(const std::string& name) {
  return name.ends_with("Finalize") || name.ends_with("Session_finalize");
}
/// Whether the way is one that the call has.
bool is_possible(const std::string& name, const std::string& way) {
  const bool completes = name.find("Wait") != std::string::npos || name.find("Test") != std::string::npos;
  return way == "stop" ? !ends_run(name) : completes || !way.ends_with("behind its request");
}
/// Whether leases rightly outlast the call: where it has succeeded, and where its request was freed.
bool holds_leases(const std::string& name, const std::string& way) {
  return way == "fork" || name.ends_with("Request_free");
}

struct Way {
  const char* name;
  const char* expected;
  void (*leave)();
  std::string (*outcome)(const ways_out::Call&);
};
/// Takes the handle away, as MPI does for a request that has ended before an error handler of the program's
/// is called.
void end_request() { given.request = kNoRequest; }

const Way kWays[] = {
    {"throw", "caught", ways_out::leave_by_throw, ways_out::by_throw},
    {"cancel", "cancelled", ways_out::stay_to_be_cancelled, ways_out::by_cancel},
    {"jump", "jumped", ways_out::leave_by_jump, ways_out::by_jump},
    {"jump and end", "jumped", ways_out::leave_by_jump, ways_out::by_jump_of_a_thread},
    {"throw behind its request", "caught",
     [] {
       end_request();
       ways_out::leave_by_throw();
     },
     ways_out::by_throw},
    {"jump behind its request", "jumped",
     [] {
       end_request();
       ways_out::leave_by_jump();
     },
     ways_out::by_jump},
    {"fork", "child's status 5", ways_out::fork_inside, ways_out::by_fork},
    {"stop", "returned", [] { MPI_Finalize(); },
     [](const ways_out::Call& call) {
       call();
       struct pinion_statistics figures {};
       const std::uint64_t pinned = ways_out::read(figures) ? 0 : ways_out::pinned_bytes();  // 0: it goes on
       MPI_Init(nullptr, nullptr);
       return pinned == 0 ? std::string("returned") : std::to_string(pinned) + " bytes are left";
     }},
};

/// A request under way, for functions that are given one.
void begin_request(const std::string& name) {
  const bool starts = name.find("Start") != std::string::npos;
  for (const char* needs : {"Start", "Wait", "Test", "Request_free"})
    if (name.find(needs) != std::string::npos)
      starts ? MPI_Send_init(given.buffers[0], kBytes, kByte, 0, 0, kWorld, &given.request)
             : MPI_Isend(given.buffers[0], kBytes, kByte, 0, 0, kWorld, &given.request);
}

void leave(const Function& function, const Way& way) {
  renew();
  begin_request(function.name);
  ways_out_armed = function.name;
  ways_out_leave = way.leave;
  const std::string outcome = way.outcome([&] {
    ways_out_here = true;
    function.call();
  });
  if (outcome != way.expected) {
    std::fprintf(stderr, "%s %s: %s\n", function.name, way.name, outcome.c_str());
    ++g_faults;
  }
  if (ways_out_armed != nullptr) {
    std::fprintf(stderr, "%s %s: never called\n", function.name, way.name);
    ++g_faults;
  }
  ways_out_armed = nullptr;
  if (ends_run(function.name) || holds_leases(function.name, way.name)) {
    MPI_Finalize();
    MPI_Init(nullptr, nullptr);
  }
  ways_out::deeper([&] { expect_order(function.name, way.name); });
}

}  // namespace

int main(int count, char** arguments) {
  renew();
  MPI_Init(nullptr, nullptr);
  if (count == 2) {
    for (const Function& function : kFunctions) {
      if (std::strcmp(function.name, arguments[1]) != 0) continue;
      begin_request(function.name);
      ways_out_armed = function.name;
      ways_out_leave = ways_out::leave_by_exit;
      ways_out_here = true;
      function.call();
    }
    return 1;
  }
  for (const Function& function : kFunctions)
    for (const Way& way : kWays)
      if (is_possible(function.name, way.name)) leave(function, way);
  MPI_Finalize();
  // A process each: a part of them.
  for (std::size_t i = 0; i < std::size(kFunctions); i += 17) {
    const int status = ways_out::status_of_self("ways_out_mpi", kFunctions[i].name);
    if (status == 7) continue;
    std::fprintf(stderr, "%s exit: status %d\n", kFunctions[i].name, status);
    ++g_faults;
  }
  std::printf("%zu functions, %d faults\n", std::size(kFunctions), g_faults);
  return g_faults != 0;
}
