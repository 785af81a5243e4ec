#include "intercept/mpi/session.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "base/process.h"
#include "base/process_mutex.h"
#include "base/shown_text.h"
#include "base/warning.h"
#include "intercept/mpi/freed_requests.h"
#include "intercept/mpi/holdings.h"
#include "intercept/mpi/nesting.h"
#include "intercept/mpi/requests.h"
#include "lease/acts.h"
#include "lease/thread_end.h"
#include "process/engine.h"

namespace pinion::mpi {

namespace {

/// Prints this rank's figures. `log`: the directory; empty: none.
void print_summary(const runlog::Counters& c, double seconds, bool measured, const std::string& log) {
  const auto acquires = static_cast<unsigned long long>(c.acquires);
  const char* const s = c.acquires == 1 ? "" : "s";
  if (measured && log.empty()) {
    warn(
        "%s; %llu transfer%s. With --log DIR, `pinion report DIR` shows the memory and time of each strategy",
        kMeasuredOnly, acquires, s);
  } else if (measured) {
    warn("%s; %llu transfer%s. The memory and time of each strategy:", kMeasuredOnly, acquires, s);
    std::fprintf(stderr, "pinion:   pinion report %s\n", quoted(log).c_str());
  } else {
    constexpr double kMiB = 1 << 20;
    const double mean = seconds > 0 ? c.registered_byte_ns / 1e9 / seconds : 0;
    warn(
        "registered %.1f MiB at most, %.1f MiB on average; %llu transfer%s: hits %llu, waits %llu, misses "
        "%llu (late %llu), bounced %llu; %.3f s lost to registration",
        static_cast<double>(c.registered_peak_bytes) / kMiB, mean / kMiB, acquires, s,
        static_cast<unsigned long long>(c.hits), static_cast<unsigned long long>(c.waits),
        static_cast<unsigned long long>(c.misses), static_cast<unsigned long long>(c.late),
        static_cast<unsigned long long>(c.bounced),
        static_cast<double>(c.registration_ns + c.wait_ns + c.bounce_ns) / 1e9);
  }
}

// MPI sessions may begin and end in any thread.
ProcessMutex g_mutex;
int g_sessions GUARDED_BY(g_mutex) = 0;
int g_runs GUARDED_BY(g_mutex) = 0;
bool g_joined GUARDED_BY(g_mutex) = false;
Time g_started GUARDED_BY(g_mutex) = 0;
bool g_summary GUARDED_BY(g_mutex) = false;

[[noreturn]] void refuse(int rank, const Error& error) {
  if (rank <= 0) std::fprintf(stderr, "pinion: %s\n", error.message);
  std::_Exit(2);
}

}  // namespace

void begin_session(bool spawned) {
  const ProcessLock lock(g_mutex);
  if (g_sessions++ > 0) return;
  Options options;
  Error error = options_from_environment(options);
  if (!error && options.off) return;
  JobPlace place = job_place();
  if (place.rank < 0) place = {0, 1, 1};  // started without a launcher: a job of one
  if (error) refuse(place.rank, error);
  if (!list_holds(options.only_ranks, place.rank).value_or(true)) return;
  // A spawned process, or a second run of one process, is none of the job's ranks in its logs.
  if (spawned || g_runs > 0) place = {-1, -1, place.local_ranks};
  // The program may have started Pinion itself: then its options hold.
  error = Engine::join(options, place, false);
  // The machine lacks something, and the program can do without Pinion. All else is the user's to put right.
  if (error && error.code == EAGAIN) return warn("%s; it runs without Pinion", error.message);
  if (error) refuse(place.rank, error);
  const char* summary = std::getenv("PINION_SUMMARY");
  watch_thread_ends(end_call_left_behind);
  g_joined = true;
  g_summary = place.rank == 0 && summary && *summary == '1';
  g_started = monotonic_now();
  // A program that exits without MPI_Finalize still gets its log completed.
  if (g_runs++ == 0) std::atexit(Engine::stop_at_exit);
  const std::uint64_t threshold = LeasePath::running()->threshold();
  g_threshold.store(threshold, std::memory_order_relaxed);
  g_least_bytes.store(threshold, std::memory_order_relaxed);
}

bool intranode_is_off() {
  if (const LeasePath* leases = LeasePath::running()) return !leases->options().intranode;
  Options options;
  return !options_from_environment(options) && !options.intranode;
}

void end_session() {
  const ProcessLock lock(g_mutex);
  if (g_sessions == 0 || --g_sessions > 0 || !g_joined) return;
  g_joined = false;
  g_least_bytes.store(kNothing, std::memory_order_relaxed);
  g_threshold.store(kNothing, std::memory_order_relaxed);
  Engine* engine = Engine::running();
  ThreadContext* thread = this_thread();
  if (!engine || !thread) return;
  Requests::instance().release_all(*thread, engine->lease_path());
  FreedRequests::instance().finish(*thread, engine->lease_path());
  for (Holdings* holdings : {&Holdings::windows(), &Holdings::origins(), &Holdings::files()})
    holdings->release_all(*thread, engine->lease_path());
  const double seconds = static_cast<double>(monotonic_now() - g_started) / 1e9;
  if (const Error error = Engine::leave()) std::fprintf(stderr, "pinion: %s\n", error.message);
  const bool measured =
      acts_at_start(engine->options()) == Acts::measured && !engine->lease_path().acts_below();
  if (g_summary) print_summary(engine->counters().all(), seconds, measured, engine->options().log);
}

void switch_recording(bool on) {
  g_least_bytes.store(on ? g_threshold.load(std::memory_order_relaxed) : kNothing, std::memory_order_relaxed);
}

}  // namespace pinion::mpi
