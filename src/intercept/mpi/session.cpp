#include "intercept/mpi/session.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>

#include "engine/engine.h"
#include "intercept/mpi/requests.h"

namespace pinion::mpi {

namespace {

int first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name); text && *text) return std::atoi(text);
  }
  return -1;
}

// Launchers say who a process is without a collective call, which could hang where some ranks run without
// Pinion.
JobPlace job_place() {
  JobPlace place;
  place.rank = first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  place.ranks = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  place.local_ranks =
      first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"});
  if (place.rank < 0) place = {0, 1, 1};  // started without a launcher: a job of one
  return place;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c == '\0') c = ' ';
  }
  return text;
}

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

Time g_started = 0;
bool g_summary = false;

}  // namespace

void begin_session() {
  Options options;
  Error error = options_from_environment(options);
  if (!error && options.off) return;
  const JobPlace place = job_place();
  if (!error) error = Engine::start(options, place, command_line());
  if (error) {
    if (place.rank <= 0) std::fprintf(stderr, "pinion: %s\n", error.message);
    std::_Exit(2);
  }
  const char* summary = std::getenv("PINION_SUMMARY");
  g_summary = place.rank == 0 && summary && *summary == '1';
  g_started = monotonic_now();
  // A program that exits without MPI_Finalize still gets its log completed.
  std::atexit(Engine::stop);
}

void end_session() {
  Engine* engine = Engine::running();
  if (!engine) return;
  Requests::instance().release_all();
  const double seconds = static_cast<double>(monotonic_now() - g_started) / 1e9;
  Engine::stop();
  if (g_summary) print_summary(engine->counters(), seconds);
}

}  // namespace pinion::mpi
