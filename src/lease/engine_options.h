// All options of a process: the engine's own and those of the fronts that it serves, and the tables of the
// rooms below put together. Filled before threads start, then only read. For ordinary code, outside of hooks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "device/device_options.h"
#include "monitor/monitor_options.h"
#include "node/node_options.h"
#include "placement/placement_options.h"
#include "predict/predictor.h"
#include "registry/registry_options.h"
#include "retention/retention_options.h"
#include "runlog/runlog_options.h"

namespace pinion {

/// The place where the program's transfers are met: its MPI calls, or below all libraries, where these
/// register memory with the RDMA devices that the program opened; or its copies to and from GPUs. Automatic:
/// the second as soon as that happens, and the last wherever there is a GPU's driver.
enum class Front : std::uint8_t { automatic, mpi, verbs, cuda };

/// How copies to and from GPUs are made: registered or staged, as suits each, or staged only.
enum class CudaCopies : std::uint8_t { automatic, stage };

/// Whether a key with remote rights outlives the deregistration by its owner (intercept/verbs).
enum class RemoteKeys : std::uint8_t { automatic, shared, strict };

struct ProcessOptions {
  bool off = false;
  std::string except;  ///< the executables in which it is off
};

struct FrontOptions {
  std::uint64_t threshold = 16 << 10;
  Front front = Front::automatic;
  RemoteKeys remote_keys = RemoteKeys::automatic;
  CudaCopies cuda = CudaCopies::automatic;
  double verify = -1;     ///< share of copies to and from GPUs; negative: off
  bool intranode = true;  ///< transfers between processes of one node are registered
  /// Receives are registered for the arriving bytes instead of the posted ones.
  bool receives_arrived = true;
  std::string only_ranks;
};

struct Options : ProcessOptions,
                 RetentionOptions,
                 PredictOptions,
                 RegistryOptions,
                 NodeOptions,
                 DeviceOptions,
                 FrontOptions,
                 MonitorOptions,
                 PlacementOptions,
                 LogOptions {};

std::vector<OptionSpec> option_specs();

/// An option of the version before. It is accepted, has no effect, and is warned of once.
struct RetiredOption {
  const char* name;
  const char* instead;
};
inline constexpr RetiredOption kRetiredOptions[] = {
    {"helper-share", "time-budget bounds the helper's time too"},
    {"start-credit", "time-budget allows 20 ms at least"},
    {"minimize", "the peak has a goal where registrations are cheap"},
    {"preregister-alias", "segments of the arena have one view"},
};

/// The value as a user would write it; empty for an unknown name.
std::string option_value(const Options& options, std::string_view name);
/// Sets one option. The error names the valid names, the valid choices, or the valid form.
Error set_option(Options& options, std::string_view name, std::string_view value);
/// "limit=2G,retention=helper"; also the single words `off` and `on`.
Error parse_options(Options& options, std::string_view text);
/// A file of `name=value` lines (base/settings_file.h).
Error load_options_file(Options& options, const std::string& path);
/// PINION_CONFIG first, then PINION, which overrides it. Then `off` is set if `except` names this process's
/// executable.
Error options_from_environment(Options& options);
/// Names for each option that those set its source: the file's path or "PINION".
std::map<std::string, std::string> option_sources();
/// The values that differ from the defaults, in the form that parse_options() reads.
std::string format_options(const Options& options);
/// The options that a log names; those unknown here keep their defaults.
Options recorded_options(std::string_view text);

/// "gdb:nsys*:/opt/site/*" -> whether an item matches the executable at `path`: its name, or where the item
/// has a slash, the whole path.
bool names_executable(std::string_view list, const std::string& path);

/// "0-3:7" -> whether `rank` is in it; an empty list holds every rank. Nothing when the text has another
/// form.
std::optional<bool> list_holds(std::string_view list, int rank);

/// Whether the log lasts for the run alone, for its summary: then it keeps what retention learns from, and no
/// hits beside.
bool log_is_temporary();

}  // namespace pinion
