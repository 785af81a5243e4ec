#include "lease/engine_options.h"

#include <fnmatch.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>

#include "base/process.h"
#include "base/warning.h"

namespace pinion {

namespace {

constexpr Choice<bool> kYesNo[] = {{"yes", true}, {"no", false}};
constexpr Choice<bool> kOnOff[] = {{"on", true}, {"off", false}};
constexpr Choice<bool> kReceives[] = {{"arrived", true}, {"posted", false}};
constexpr Choice<Front> kFronts[] = {
    {"auto", Front::automatic}, {"mpi", Front::mpi}, {"verbs", Front::verbs}, {"cuda", Front::cuda}};
constexpr Choice<CudaCopies> kCudaCopies[] = {{"auto", CudaCopies::automatic}, {"stage", CudaCopies::stage}};
constexpr Choice<RemoteKeys> kRemoteKeys[] = {
    {"auto", RemoteKeys::automatic}, {"shared", RemoteKeys::shared}, {"strict", RemoteKeys::strict}};

/// Calls `f` for each item of a list with colons; false: `f` has returned it, which ends the list.
bool each_item(std::string_view list, const std::function<bool(std::string_view)>& f) {
  for (;;) {
    const auto colon = list.find(':');
    if (!f(list.substr(0, colon))) return false;
    if (colon == std::string_view::npos) return true;
    list.remove_prefix(colon + 1);
  }
}

/// A bracket that stays open would be taken for itself, and match nothing.
bool is_pattern(std::string_view text) {
  std::size_t open = 0;
  while ((open = text.find('[', open)) != std::string_view::npos) {
    open = text.find(']', open + 2);
    if (open == std::string_view::npos) return false;
  }
  return !text.empty() && text.back() != '\\' && text.back() != '/';
}

bool is_pattern_list(std::string_view text) { return text.empty() || each_item(text, is_pattern); }

bool is_list(std::string_view text) { return list_holds(text, 0).has_value(); }

OptionTable<ProcessOptions> process_options() {
  return {
      switch_option(&ProcessOptions::off, {"off", "do nothing: the program runs as without Pinion"}, kYesNo),
      text_option(
          &ProcessOptions::except,
          {"except", "executables in which Pinion does nothing, such as gdb:nsys*:/opt/site/*; empty: none",
           Listing::everyday, "names, patterns or paths of executables such as gdb:nsys*:/opt/site/*"},
          is_pattern_list)};
}

OptionTable<FrontOptions> front_options() {
  using O = FrontOptions;
  return {
      size_option(&O::threshold,
                  {"threshold", "size of the smallest transfer that needs registration", Listing::advanced},
                  1),
      choice_option(
          &O::front,
          {"front",
           "where Pinion sees transfers. verbs: below all libraries, at ibv_reg_mr. mpi: at MPI calls. "
           "cuda: at copies to and from GPUs. auto: verbs if a library registers with an active RDMA "
           "device; else MPI calls, measured only; and cuda beside them"},
          kFronts),
      choice_option(
          &O::cuda,
          {"cuda",
           "how host memory is copied to and from GPUs. auto: registered where buffers return, else staged "
           "through pinned memory. stage: staged only, which registers none of the program's memory"},
          kCudaCopies),
      share_option(
          &O::verify,
          {"verify",
           "share of the staged and registered copies to and from GPUs whose bytes are compared at both "
           "ends, such as 1%, or off"}),
      choice_option(
          &O::remote_keys,
          {"remote-keys",
           "with front verbs, whether the device still takes a key after its deregistration, from peers and "
           "posted work. shared: yes. strict: no. auto: for callers that have a cache of their own"},
          kRemoteKeys),
      switch_option(
          &O::intranode,
          {"intranode", "register transfers between processes of one node too; all ranks need the same value",
           Listing::advanced},
          kOnOff),
      choice_option(
          &O::receives_arrived,
          {"receives",
           "registered part of a receive: the bytes that arrive, where Pinion can tell, or all bytes posted",
           Listing::advanced},
          kReceives),
      text_option(&O::only_ranks,
                  {"only-ranks", "ranks that run under Pinion, such as 0-3:7; empty: all", Listing::everyday,
                   "ranks such as 0-3:7"},
                  is_list),
  };
}

const OptionTable<Options>& table() {
  static const OptionTable<Options> all = [] {
    OptionTable<Options> rows;
    append(rows, process_options());
    append(rows, retention_options());
    append(rows, predict_options());
    append(rows, registry_options());
    append(rows, node_options());
    append(rows, device_options());
    append(rows, front_options());
    append(rows, monitor_options());
    append(rows, placement_options());
    append(rows, log_options());
    return rows;
  }();
  return all;
}

/// Returns whether the option is a retired one.
bool warn_of_retired(std::string_view name) {
  static std::atomic<unsigned> warned{0};
  for (unsigned i = 0; i < std::size(kRetiredOptions); ++i) {
    if (name != kRetiredOptions[i].name) continue;
    if ((warned.fetch_or(1U << i) >> i & 1U) == 0)
      warn("option %s has no effect any more: %s", kRetiredOptions[i].name, kRetiredOptions[i].instead);
    return true;
  }
  return false;
}

}  // namespace

std::vector<OptionSpec> option_specs() {
  std::vector<OptionSpec> specs;
  for (const auto& row : table()) specs.push_back(row.spec);
  return specs;
}

std::string option_value(const Options& options, std::string_view name) {
  for (const auto& row : table())
    if (name == row.spec.name) return row.get(options);
  return {};
}

Error set_option(Options& options, std::string_view name, std::string_view value) {
  return warn_of_retired(name) ? Error{} : set_option(table(), options, name, value);
}

Error parse_options(Options& options, std::string_view text) {
  return parse_settings(
      text, [&](std::string_view name, std::string_view value) { return set_option(options, name, value); });
}

Options recorded_options(std::string_view text) {
  Options options;
  (void)parse_settings(text, [&](std::string_view name, std::string_view value) {
    (void)set_option(table(), options, name, value);
    return Error{};
  });
  return options;
}

Error load_options_file(Options& options, const std::string& path) {
  return read_settings(path, [&](std::string_view name, std::string_view value) -> Error {
    // PINION carries the options to the ranks, separated by commas.
    if (value.find(',') != std::string_view::npos)
      return Error::make(EINVAL, "option %s: a value must not contain a comma",
                         std::string(name.substr(0, 60)).c_str());
    return set_option(options, name, value);
  });
}

Error options_from_environment(Options& options) {
  if (const char* path = std::getenv("PINION_CONFIG"); path && *path) {
    if (Error error = load_options_file(options, path)) return error;
  }
  // Tests name monitors that users reach through `auto` only.
  if (const char* kind = std::getenv("PINION_TEST_MONITOR")) {
    if (Error error = find_monitor(kind, options.monitor)) return error;
  }
  const char* text = std::getenv("PINION");
  const Error error = text ? parse_options(options, text) : Error{};
  if (!error && !options.except.empty() && names_executable(options.except, executable_path()))
    options.off = true;
  return error;
}

std::map<std::string, std::string> option_sources() {
  std::map<std::string, std::string> sources;
  const auto note = [&](const std::string& source) {
    return [&sources, source](std::string_view name, std::string_view) -> Error {
      sources[std::string(name)] = source;
      return {};
    };
  };
  if (const char* path = std::getenv("PINION_CONFIG"); path && *path)
    static_cast<void>(read_settings(path, note(path)));
  if (const char* text = std::getenv("PINION")) static_cast<void>(parse_settings(text, note("PINION")));
  return sources;
}

std::string format_options(const Options& options) { return format_options(table(), options); }

bool names_executable(std::string_view list, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return !each_item(list, [&](std::string_view item) {
    const std::string pattern(item);
    const std::string& subject = pattern.find('/') == std::string::npos ? name : path;
    return ::fnmatch(pattern.c_str(), subject.c_str(), 0) != 0;
  });
}

std::optional<bool> list_holds(std::string_view list, int rank) {
  bool holds = list.empty();
  while (!list.empty()) {
    const auto colon = list.find(':');
    const auto item = list.substr(0, colon);
    list = colon == std::string_view::npos ? std::string_view{} : list.substr(colon + 1);
    const auto dash = item.find('-');
    const auto first = parse_count(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_count(item.substr(dash + 1));
    if (!first || !last || *last < *first) return {};
    holds = holds || (rank >= 0 && *first <= static_cast<std::uint64_t>(rank) &&
                      static_cast<std::uint64_t>(rank) <= *last);
  }
  return holds;
}

bool log_is_temporary() {
  const char* const temporary = std::getenv("PINION_TEMPORARY_LOG");
  return temporary != nullptr && *temporary == '1';
}

}  // namespace pinion
