// Owns what every group of facts shares: rows, child processes with a time limit, gates that hold a stream
// back, steps that say whether a call waited for a gate, and memory of a known kind. Used by one thread of a
// child, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver.h"

namespace pinion::gpu {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

/// Sends one row to the parent: a fact, its value, its unit and how it was found.
void emit(const std::string& name, const std::string& value, const std::string& unit = "",
          const std::string& how = "");
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
/// "64 KiB", "3 MiB".
std::string size_name(std::size_t bytes);
/// "ok", or the driver's number for the error.
std::string result_name(Result result);
/// Ends the child with a row if the call failed.
void must(Result result, const char* what);

/// Microseconds of a steady clock.
inline double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Measured times; a row shows the median, with the 10th and 90th percentile.
class Times {
 public:
  void add(double microseconds) { values_.push_back(microseconds); }
  bool empty() const { return values_.empty(); }
  std::size_t count() const { return values_.size(); }
  double quantile(double part) const;
  double median() const { return quantile(.5); }
  /// "31.2 (30.9..33.0)".
  std::string summary() const;

 private:
  std::vector<double> values_;
};

/// Kernels of one context, loaded from PTX text.
struct Kernels {
  Function hold = nullptr;     // Waits until a word reaches a value.
  Function nothing = nullptr;  // Returns at once.
  Function look = nullptr;     // Copies five words of a buffer to a log.
  static Kernels load();
};

/// The driver, initialized, with the primary context current and a non-blocking stream.
struct Session {
  Session();
  Device device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  Kernels kernels;
};

enum class GateKind { kValue, kCallback, kKernel };
const char* gate_name(GateKind kind);

/// Holds streams back until it is opened; it can be closed again afterwards.
class Gate {
 public:
  explicit Gate(GateKind kind);
  /// Adds work to the stream that waits for open(). The stream's context is current.
  void close(Stream stream, const Kernels& kernels);
  /// Any thread may open the gate.
  void open();

 private:
  static void wait_in_callback(void* self);
  GateKind kind_;
  volatile std::uint32_t* word_ = nullptr;
  DevicePointer device_word_ = 0;
  std::uint32_t closed_ = 0;
};

/// A call's outcome while a gate was closed.
struct Step {
  bool finished = false, at_once = false;
  Result result = 0;
  double microseconds = 0;
  std::string text() const;
};

/// Makes a call in a thread of its own, with the context current. Opens the gate if the call takes longer
/// than the patience, and ends the child with a row "hangs" if the call does not return then.
Step step(Context context, Gate& gate, std::function<Result()> call, int patience_ms = 250);

enum class Pages { kBase, kHuge };
/// Maps private memory, aligned to 2 MiB, on base pages or transparent hugepages.
char* map_memory(std::size_t bytes, Pages pages = Pages::kBase);
void unmap_memory(void* memory, std::size_t bytes);
/// Writes the value into every word, with several threads if asked.
void fill(void* memory, std::size_t bytes, std::uint32_t value, int threads = 1);
/// "1" if every word is 1, "2" if every word is 2, otherwise "mixed (first .., last ..)".
std::string contents(const void* memory, std::size_t bytes);
std::string device_contents(DevicePointer memory, std::size_t bytes);
/// A line of /proc/self/status in KiB, such as "RssAnon".
long status_kib(const char* field);

/// One experiment: it runs in a child process of its own, for at most so many seconds.
struct Experiment {
  std::string name;
  int limit_seconds;
  std::function<void()> body;
};
using Experiments = std::vector<Experiment>;

// Each function adds the experiments of its group.
void add_waits(Experiments& all);
void add_returns(Experiments& all);
void add_partly(Experiments& all);
void add_atomic(Experiments& all);
void add_captures(Experiments& all);
void add_lock(Experiments& all);
void add_costs(Experiments& all);
void add_staged(Experiments& all);
void add_state(Experiments& all);
void add_contexts(Experiments& all);
void add_fork(Experiments& all);
void add_second(Experiments& all);
void add_capture_calls(Experiments& all);
void add_names(Experiments& all);

}  // namespace pinion::gpu
