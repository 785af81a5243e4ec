#include "intercept/mpi/session.h"

#include <cstdio>
#include <cstdlib>

#include "engine/engine.h"
#include "engine/process.h"
#include "intercept/mpi/requests.h"

namespace pinion::mpi {

namespace {

void print_summary(const runlog::Counters& c, double seconds) {
  const double mean = seconds > 0 ? c.registered_byte_ns / 1e9 / seconds : 0;
  std::fprintf(stderr,
               "pinion: rank 0: registered peak %.1f MB, mean %.1f MB; %llu acquires: %llu hits, %llu waits, "
               "%llu misses "
               "(%llu late), %llu bounced; %.3f s on the critical path\n",
               static_cast<double>(c.registered_peak_bytes) / 1e6, mean / 1e6,
               static_cast<unsigned long long>(c.acquires), static_cast<unsigned long long>(c.hits),
               static_cast<unsigned long long>(c.waits), static_cast<unsigned long long>(c.misses),
               static_cast<unsigned long long>(c.late), static_cast<unsigned long long>(c.bounced),
               static_cast<double>(c.registration_ns + c.wait_ns + c.bounce_ns) / 1e9);
}

// Of the thread that initializes and finalizes MPI.
bool g_joined = false;
Time g_started = 0;
bool g_summary = false;

}  // namespace

void begin_session() {
  if (g_joined) return;
  Options options;
  Error error = options_from_environment(options);
  if (!error && options.off) return;
  JobPlace place = job_place();
  if (place.rank < 0) place = {0, 1, 1};  // started without a launcher: a job of one
  // The program may have started Pinion itself: then its options hold.
  if (!error) error = Engine::join(options, place, false);
  if (error) {
    if (place.rank == 0) std::fprintf(stderr, "pinion: %s\n", error.message);
    std::_Exit(2);
  }
  const char* summary = std::getenv("PINION_SUMMARY");
  g_joined = true;
  g_summary = place.rank == 0 && summary && *summary == '1';
  g_started = monotonic_now();
  // A program that exits without MPI_Finalize still gets its log completed.
  std::atexit(Engine::stop);
}

void end_session() {
  Engine* engine = Engine::running();
  if (!engine || !g_joined) return;
  g_joined = false;
  Requests::instance().release_all();
  const double seconds = static_cast<double>(monotonic_now() - g_started) / 1e9;
  if (const Error error = Engine::leave()) std::fprintf(stderr, "pinion: %s\n", error.message);
  if (g_summary) print_summary(engine->counters(), seconds);
}

}  // namespace pinion::mpi
