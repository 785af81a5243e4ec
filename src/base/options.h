// The one option table: every name, type, default, text and check, for command flags, the environment
// variable PINION, configuration files and `pinion info options` alike. An Options value is filled before
// threads start and then only read. Nothing here may be called from a hook.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace pinion {

/// How memory events are seen (monitor/monitor.h).
enum class MonitorKind : std::uint8_t {
  automatic,
  libc,
  libc_userfaultfd,
  symbols,
  symbols_userfaultfd,
  userfaultfd,
  brackets
};

/// Who of a node's processes has a helper (node/policy.h).
enum class PolicyKind : std::uint8_t { sleeping, none_if_busy, aggressive, conservative };

/// Where the program's transfers are met: at its MPI calls, or below all libraries, where these register
/// memory with the RDMA devices that the program opened.
enum class Front : std::uint8_t { mpi, verbs };

/// Whether a key with remote rights outlives the deregistration by whom it was given to (intercept/verbs).
enum class RemoteKeys : std::uint8_t { automatic, shared, strict };

enum class RetentionKind : std::uint8_t { observe, on_demand, leave_pinned, lru, helper };
enum class Minimize : std::uint8_t { mean, peak };

struct Options {
  bool off = false;
  RetentionKind retention = RetentionKind::helper;
  std::string predictor = "adaptive";
  std::uint64_t window = 2;
  std::string profile;
  double time_budget = 0.005;  ///< share of elapsed time; negative: off
  Duration start_credit = 20 * kMillisecond;
  Minimize minimize = Minimize::mean;
  std::uint64_t threshold = 16 << 10;
  std::uint64_t limit =
      0;  ///< bytes; 0: the least of RLIMIT_MEMLOCK, cgroup and device caps (see registry/budget.h)
  std::uint64_t limit_regions = 0;
  std::uint64_t node_limit = 0;  ///< bytes of all processes of the job on the node; 0: none
  PolicyKind policy = PolicyKind::sleeping;
  std::uint64_t policy_every = 100;  ///< operations from one look at the node's other processes to the next
  std::uint64_t lru_size = 64 << 20;
  std::string device = "pin";
  std::string nic = "connectx";
  Front front = Front::mpi;
  RemoteKeys remote_keys = RemoteKeys::automatic;
  MonitorKind monitor = MonitorKind::automatic;
  Duration poll = kMillisecond;
  bool intranode = true;         ///< transfers between processes of one node are registered
  bool receives_arrived = true;  ///< receives are registered for what arrives, not for what was posted
  std::string only_ranks;
  bool feed_libfabric = true;
  std::string log;
  std::uint64_t log_size = 64 << 20;
};

/// One row of the table.
struct OptionSpec {
  const char* name;           ///< as in `--name value`, `PINION="name=value"` and files
  const char* type;           ///< size, count, time, share, choice, text, switch
  const char* default_value;  ///< as the user would write it
  const char* text;           ///< one line
  std::vector<std::string> choices;
  const char* form = nullptr;  ///< the valid values, where the type alone leaves them open
};

const std::vector<OptionSpec>& option_specs();

/// Sets one option. The error names the valid names, the valid choices, or the valid form.
Error set_option(Options& options, std::string_view name, std::string_view value);
/// "limit=2G,retention=helper"; also the single words `off` and `on`.
Error parse_options(Options& options, std::string_view text);
/// A file of `name=value` lines (base/settings_file.h).
Error load_options_file(Options& options, const std::string& path);
/// PINION_CONFIG first, then PINION, which overrides it.
Error options_from_environment(Options& options);
/// The values that differ from the defaults, in the form that parse_options() reads.
std::string format_options(const Options& options);

const char* to_string(RetentionKind kind);
const char* to_string(MonitorKind kind);
const char* to_string(PolicyKind kind);
const char* to_string(RemoteKeys keys);

/// "0-3:7" -> whether `rank` is in it; an empty list holds every rank. Nothing when the text has another
/// form.
std::optional<bool> list_holds(std::string_view list, int rank);

/// "; did you mean verbs:mlx5_0?" for the bare name of an RDMA device; else nothing.
std::string device_hint(std::string_view device);

/// "16K", "2G", "1.5M", "4096" -> bytes (powers of 1024; at most 2^60). Nothing when the text has another
/// form. Fractions need a unit, and must come to one byte at least: 0 often means no limit. The same holds
/// for durations and shares.
std::optional<std::uint64_t> parse_size(std::string_view text);
/// "10us", "5ms", "2s", "100ns" -> nanoseconds.
std::optional<Duration> parse_duration(std::string_view text);
/// "0.5%" -> 0.005, from 0 to 100 %. Nothing when the text has another form.
std::optional<double> parse_share(std::string_view text);
std::string format_share(double share);
/// 65536 -> "64K", 1500 -> "1500".
std::string format_size(std::uint64_t bytes);
std::string format_duration(Duration d);

}  // namespace pinion
