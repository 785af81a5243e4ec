// Measures what a thread that registers memory costs the program's other threads: a pinned copy of 16 MiB and
// a kernel launch beside it, for several sizes of a piece and several pauses between two calls.
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr std::size_t kRegion = kGiB, kCopy = 16 * kMiB;

enum class Pause { kNone, kYield, k20, k70, k200 };

const char* pause_name(Pause pause) {
  switch (pause) {
    case Pause::kNone:
      return "no pause";
    case Pause::kYield:
      return "sched_yield";
    case Pause::k20:
      return "20 us sleep, slack 1 ns";
    case Pause::k70:
      return "70 us sleep, slack 1 ns";
    case Pause::k200:
      return "200 us sleep, slack 1 ns";
  }
  return "";
}

void pause_now(Pause pause) {
  if (pause == Pause::kNone) return;
  if (pause == Pause::kYield) {
    ::sched_yield();
    return;
  }
  const int microseconds = pause == Pause::k20 ? 20 : pause == Pause::k70 ? 70 : 200;
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

enum class Phase { kIdle, kRegister, kUnregister };

/// A thread that registers a region in pieces and unregisters it again, all the time.
class Registrar {
 public:
  Registrar(Context context, std::size_t piece, Pause pause) : piece_(piece), pause_(pause) {
    static char* const region = [] {
      char* const memory = map_memory(kRegion);
      fill(memory, kRegion, 1, 8);
      return memory;
    }();
    thread_ = std::thread([this, context] {
      ::prctl(PR_SET_TIMERSLACK, 1UL);
      driver().context_set(context);
      while (!stop_) round(region);
    });
  }
  ~Registrar() {
    stop_ = true;
    thread_.join();
  }
  Phase phase() const { return phase_; }
  /// GB/s of the rounds so far, pauses included.
  double registering() const { return rate(register_time_); }
  double unregistering() const { return rate(unregister_time_); }

 private:
  double rate(double microseconds) const {
    return microseconds > 0 ? static_cast<double>(kRegion) * rounds_ / microseconds / 1e3 : 0;
  }
  void round(char* region) {
    phase_ = Phase::kRegister;
    double began = now();
    for (std::size_t at = 0; at < kRegion; at += piece_) {
      must(driver().host_register(region + at, piece_, kPortable), "cuMemHostRegister");
      pause_now(pause_);
    }
    const double registered = now();
    phase_ = Phase::kUnregister;
    for (std::size_t at = 0; at < kRegion; at += piece_) {
      must(driver().host_unregister(region + at), "cuMemHostUnregister");
      pause_now(pause_);
    }
    phase_ = Phase::kIdle;
    register_time_ = register_time_ + registered - began;
    unregister_time_ = unregister_time_ + now() - registered;
    rounds_ = rounds_ + 1;
  }
  std::size_t piece_;
  Pause pause_;
  std::atomic<bool> stop_{false};
  std::atomic<Phase> phase_{Phase::kIdle};
  std::atomic<double> register_time_{0}, unregister_time_{0};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

/// The program's side: pinned memory, a stream, and the two things that it does.
struct Program {
  Program() {
    void* memory = nullptr;
    must(driver().allocate_host(&memory, kCopy, kPortable), "cuMemHostAlloc");
    host = static_cast<char*>(memory);
    std::memset(host, 1, kCopy);
    must(driver().allocate(&device, kCopy), "cuMemAlloc");
    must(driver().event_create(&event, kEventBlocking | kEventNoTiming), "cuEventCreate");
  }
  double copy() {
    const double began = now();
    must(driver().copy_in_async(device, host, kCopy, session.stream), "cuMemcpyHtoDAsync");
    must(driver().event_record(event, session.stream), "cuEventRecord");
    must(driver().event_synchronize(event), "cuEventSynchronize");
    return now() - began;
  }
  double launch() {
    const double began = now();
    must(driver().launch(session.kernels.nothing, 1, 1, 1, 1, 1, 1, 0, session.stream, nullptr, nullptr),
         "launch");
    const double took = now() - began;
    if (++launches % 64 == 0) must(driver().stream_synchronize(session.stream), "cuStreamSynchronize");
    return took;
  }
  Session session;
  char* host = nullptr;
  DevicePointer device = 0;
  Event event = nullptr;
  int launches = 0;
};

/// Samples for a third of a second, counted only where they began in the phase.
Times sample(const Registrar* registrar, Phase phase, const std::function<double()>& act) {
  Times times;
  for (const double end = now() + 3.3e5; now() < end;) {
    const bool counts = !registrar || registrar->phase() == phase;
    const double took = act();
    if (counts) times.add(took);
  }
  return times;
}

std::string row(const Times& times) {
  return format("%.4g / %.4g / %.4g", times.median(), times.quantile(.99), times.quantile(1));
}

void beside(Program& program, Context registering, const char* how, std::size_t piece, Pause pause,
            Phase phase) {
  Registrar registrar(registering, piece, pause);
  const Times copies = sample(&registrar, phase, [&] { return program.copy(); });
  const Times launches = sample(&registrar, phase, [&] { return program.launch(); });
  const bool in = phase == Phase::kRegister;
  emit(format("%s pieces of %s, %s%s", in ? "registering" : "unregistering", size_name(piece).c_str(),
              pause_name(pause), how),
       format("copy %s us; launch %s us; %.3g GB/s", row(copies).c_str(), row(launches).c_str(),
              in ? registrar.registering() : registrar.unregistering()),
       "median / p99 / max", format("%zu copies, %zu launches", copies.count(), launches.count()));
}

void alone() {
  Program program;
  for (int i = 0; i < 20; ++i) program.copy();
  const Times copies = sample(nullptr, Phase::kIdle, [&] { return program.copy(); });
  const Times launches = sample(nullptr, Phase::kIdle, [&] { return program.launch(); });
  emit("nobody registers", format("copy %s us; launch %s us", row(copies).c_str(), row(launches).c_str()),
       "median / p99 / max", "pinned copy of 16 MiB with a blocking event; launch of an empty kernel");
}

void lock_of(std::size_t piece) {
  Program program;
  for (int i = 0; i < 20; ++i) program.copy();
  for (const Pause pause : {Pause::kNone, Pause::kYield, Pause::k20, Pause::k70, Pause::k200}) {
    beside(program, program.session.context, "", piece, pause, Phase::kRegister);
  }
  if (piece != 4 * kMiB && piece != 64 * kMiB) return;
  for (const Pause pause : {Pause::kNone, Pause::k20}) {
    beside(program, program.session.context, "", piece, pause, Phase::kUnregister);
  }
  Context other = nullptr;
  must(driver().context_create(&other, 0, program.session.device), "cuCtxCreate");
  driver().context_set(program.session.context);
  beside(program, other, ", in another context", piece, Pause::kNone, Phase::kRegister);
  beside(program, other, ", in another context", piece, Pause::kNone, Phase::kUnregister);
}

/// Repeats it with an equal amount of registering done by a second process.
void other_process() {
  int ready[2];
  if (::pipe(ready) != 0) return;
  const pid_t child = ::fork();
  if (child == 0) {
    Session session;
    Registrar registrar(session.context, 64 * kMiB, Pause::kNone);
    while (registrar.phase() == Phase::kIdle) ::usleep(1000);
    const char byte = 1;
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::usleep(1200000);
    ::_exit(0);
  }
  Program program;
  for (int i = 0; i < 20; ++i) program.copy();
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) return;
  const Times copies = sample(nullptr, Phase::kIdle, [&] { return program.copy(); });
  const Times launches = sample(nullptr, Phase::kIdle, [&] { return program.launch(); });
  emit("another process registers pieces of 64 MiB, no pause",
       format("copy %s us; launch %s us", row(copies).c_str(), row(launches).c_str()), "median / p99 / max");
}

}  // namespace

void add_lock(Experiments& all) {
  all.push_back({"lock", 5, alone});
  for (const std::size_t piece : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    all.push_back({"lock", 20, [=] { lock_of(piece); }});
  }
  all.push_back({"lock", 8, other_process});
}

}  // namespace pinion::gpu
