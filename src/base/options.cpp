#include "base/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/settings_file.h"

namespace pinion {

namespace {

struct Row {
  OptionSpec spec;
  // Parses the value into the options; false when it has not the form of its type.
  bool (*set)(Options&, std::string_view);
  std::string (*get)(const Options&);
};

bool set_count(std::uint64_t& out, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  out = value;
  return true;
}

bool set_size(std::uint64_t& out, std::string_view text) {
  const auto value = parse_size(text);
  if (value) out = *value;
  return value.has_value();
}

constexpr const char* kRetentionNames[] = {"observe", "on-demand", "leave-pinned", "lru", "helper"};
constexpr const char* kRemoteKeysNames[] = {"auto", "shared", "strict"};
constexpr const char* kMonitorNames[] = {
    "auto", "libc", "libc+userfaultfd", "symbols", "symbols+userfaultfd", "userfaultfd", "brackets"};

constexpr const char* kPolicyNames[] = {"sleeping", "none-if-busy", "aggressive", "conservative"};

constexpr const char* kDeviceForm =
    "pin, emulated, verbs, verbs-odp, or these two with a device: verbs:NAME, verbs:NAME:PORT";

/// A name of device/make.h.
bool is_device(std::string_view text) {
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  if (kind == "pin" || kind == "emulated") return colon == std::string_view::npos;
  if (kind != "verbs" && kind != "verbs-odp") return false;
  if (colon == std::string_view::npos) return true;
  const auto choice = text.substr(colon + 1);
  const auto second = choice.find(':');
  std::uint64_t port = 1;
  if (second != std::string_view::npos && !set_count(port, choice.substr(second + 1))) return false;
  return !choice.substr(0, second).empty() && port >= 1 && port <= 255;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"off", "switch", "no", "do nothing at all: the program runs as without Pinion", {"yes", "no"}},
       [](Options& o, std::string_view v) {
         o.off = v == "yes";
         return true;
       },
       [](const Options& o) { return std::string(o.off ? "yes" : "no"); }},
      {{"retention",
        "choice",
        "helper",
        "when registered memory is kept and when it is let go",
        {std::begin(kRetentionNames), std::end(kRetentionNames)}},
       [](Options& o, std::string_view v) {
         for (int i = 0; i < 5; ++i)
           if (v == kRetentionNames[i]) o.retention = static_cast<RetentionKind>(i);
         return true;
       },
       [](const Options& o) { return std::string(to_string(o.retention)); }},
      {{"predictor",
        "choice",
        "adaptive",
        "how the next use of a region is predicted (retention helper, observe)",
        {"adaptive", "shortest", "periodicity"}},
       [](Options& o, std::string_view v) {
         o.predictor = v;
         return true;
       },
       [](const Options& o) { return o.predictor; }},
      {{"window", "count", "2", "previous communication points in a context signature, 0 to 8", {}},
       [](Options& o, std::string_view v) { return set_count(o.window, v) && o.window <= 8; },
       [](const Options& o) { return std::to_string(o.window); }},
      {{"profile",
        "text",
        "",
        "file that predictor adaptive learns from earlier runs by, and keeps what it learnt in; empty: none",
        {}},
       [](Options& o, std::string_view v) {
         o.profile = v;
         return true;
       },
       [](const Options& o) { return o.profile; }},
      {{"time-budget",
        "share",
        "0.5%",
        "most of elapsed time that retention helper may cost against leave-pinned, beside start-credit; or "
        "off",
        {}},
       [](Options& o, std::string_view v) {
         const auto share = parse_share(v);
         if (!share && v != "off") return false;
         o.time_budget = share.value_or(-1);
         return true;
       },
       [](const Options& o) { return o.time_budget < 0 ? std::string("off") : format_share(o.time_budget); }},
      {{"start-credit",
        "time",
        "20ms",
        "time that retention helper may cost from the start, 0ms to 1000s",
        {}},
       [](Options& o, std::string_view v) {
         const auto d = parse_duration(v);
         if (!d || *d > 1000 * kSecond) return false;
         o.start_credit = *d;
         return true;
       },
       [](const Options& o) { return format_duration(o.start_credit); }},
      {{"minimize",
        "choice",
        "mean",
        "what the time budget is spent on: registered bytes at any time, or only where they are near their "
        "peak",
        {"mean", "peak"}},
       [](Options& o, std::string_view v) {
         o.minimize = v == "peak" ? Minimize::peak : Minimize::mean;
         return true;
       },
       [](const Options& o) { return std::string(o.minimize == Minimize::peak ? "peak" : "mean"); }},
      {{"threshold", "size", "16K", "smallest transfer in bytes that needs registration", {}},
       [](Options& o, std::string_view v) { return set_size(o.threshold, v) && o.threshold > 0; },
       [](const Options& o) { return format_size(o.threshold); }},
      {{"limit",
        "size",
        "0",
        "most bytes registered at a time in one process; 0: what the system leaves to it",
        {}},
       [](Options& o, std::string_view v) { return set_size(o.limit, v); },
       [](const Options& o) { return format_size(o.limit); }},
      {{"limit-regions",
        "count",
        "0",
        "most regions registered at a time in one process; 0: the device's own limit",
        {}},
       [](Options& o, std::string_view v) { return set_count(o.limit_regions, v); },
       [](const Options& o) { return std::to_string(o.limit_regions); }},
      {{"node-limit",
        "size",
        "0",
        "most bytes registered at a time by all processes of the job on a node, shared by need; 0: no such "
        "limit",
        {}},
       [](Options& o, std::string_view v) { return set_size(o.node_limit, v); },
       [](const Options& o) { return format_size(o.node_limit); }},
      {{"policy",
        "choice",
        "sleeping",
        "which of a node's processes have a helper, and on which cores (retention helper)",
        {std::begin(kPolicyNames), std::end(kPolicyNames)}},
       [](Options& o, std::string_view v) {
         for (std::size_t i = 0; i < std::size(kPolicyNames); ++i)
           if (v == kPolicyNames[i]) o.policy = static_cast<PolicyKind>(i);
         return true;
       },
       [](const Options& o) { return std::string(to_string(o.policy)); }},
      {{"policy-every",
        "count",
        "100",
        "transfers after which policies look at the node's processes again",
        {}},
       [](Options& o, std::string_view v) { return set_count(o.policy_every, v) && o.policy_every > 0; },
       [](const Options& o) { return std::to_string(o.policy_every); }},
      {{"lru-size", "size", "64M", "bytes that retention lru keeps registered", {}},
       [](Options& o, std::string_view v) { return set_size(o.lru_size, v); },
       [](const Options& o) { return format_size(o.lru_size); }},
      {{"device",
        "text",
        "pin",
        "what registers memory: pin, emulated, verbs or verbs-odp, these also with :NAME or :NAME:PORT; "
        "`pinion info devices`",
        {},
        kDeviceForm},
       [](Options& o, std::string_view v) {
         o.device = v;
         return is_device(v);
       },
       [](const Options& o) { return o.device; }},
      {{"nic",
        "text",
        "connectx",
        "cost model of the emulated device: connectx, myrinet, none, or a file",
        {},
        "connectx, myrinet, none, or a file"},
       [](Options& o, std::string_view v) {
         o.nic = v;
         return !v.empty();
       },
       [](const Options& o) { return o.nic; }},
      {{"front",
        "choice",
        "mpi",
        "where transfers are met: mpi: at MPI calls; verbs: below all libraries, at ibv_reg_mr",
        {"mpi", "verbs"}},
       [](Options& o, std::string_view v) {
         o.front = v == "verbs" ? Front::verbs : Front::mpi;
         return true;
       },
       [](const Options& o) { return std::string(o.front == Front::verbs ? "verbs" : "mpi"); }},
      {{"remote-keys",
        "choice",
        "auto",
        "front verbs: keys that peers have outlive their deregistration (shared), never (strict), or for "
        "callers "
        "that have a cache of their own (auto)",
        {std::begin(kRemoteKeysNames), std::end(kRemoteKeysNames)}},
       [](Options& o, std::string_view v) {
         for (std::size_t i = 0; i < std::size(kRemoteKeysNames); ++i)
           if (v == kRemoteKeysNames[i]) o.remote_keys = static_cast<RemoteKeys>(i);
         return true;
       },
       [](const Options& o) { return std::string(to_string(o.remote_keys)); }},
      {{"monitor",
        "choice",
        "auto",
        "how unmapped and changed memory is noticed (see `pinion doctor`)",
        {std::begin(kMonitorNames), std::end(kMonitorNames)}},
       [](Options& o, std::string_view v) {
         for (std::size_t i = 0; i < std::size(kMonitorNames); ++i)
           if (v == kMonitorNames[i]) o.monitor = static_cast<MonitorKind>(i);
         return true;
       },
       [](const Options& o) { return std::string(to_string(o.monitor)); }},
      {{"poll",
        "time",
        "1ms",
        "longest time that the helper sleeps while communication goes on, 50us to 1s",
        {}},
       [](Options& o, std::string_view v) {
         const auto d = parse_duration(v);
         if (!d || *d < 50 * kMicrosecond || *d > kSecond) return false;
         o.poll = *d;
         return true;
       },
       [](const Options& o) { return format_duration(o.poll); }},
      {{"intranode",
        "switch",
        "on",
        "transfers between processes of one node are registered too; off must be so in all ranks",
        {"on", "off"}},
       [](Options& o, std::string_view v) {
         o.intranode = v == "on";
         return true;
       },
       [](const Options& o) { return std::string(o.intranode ? "on" : "off"); }},
      {{"receives",
        "choice",
        "arrived",
        "what of a receive is registered: the bytes that arrive, as far as can be told, or those posted",
        {"arrived", "posted"}},
       [](Options& o, std::string_view v) {
         o.receives_arrived = v == "arrived";
         return true;
       },
       [](const Options& o) { return std::string(o.receives_arrived ? "arrived" : "posted"); }},
      {{"only-ranks",
        "text",
        "",
        "ranks that Pinion looks at, such as 0-3:7; empty: all",
        {},
        "ranks such as 0-3:7"},
       [](Options& o, std::string_view v) {
         o.only_ranks = v;
         return list_holds(v, 0).has_value();
       },
       [](const Options& o) { return o.only_ranks; }},
      {{"feed-libfabric",
        "switch",
        "yes",
        "be the memory monitor of libfabric's own registration cache, in programs that use it",
        {"yes", "no"}},
       [](Options& o, std::string_view v) {
         o.feed_libfabric = v == "yes";
         return true;
       },
       [](const Options& o) { return std::string(o.feed_libfabric ? "yes" : "no"); }},
      {{"log", "text", "", "directory for the run's logs, one file a node; empty: no log", {}},
       [](Options& o, std::string_view v) {
         o.log = v;
         return true;
       },
       [](const Options& o) { return o.log; }},
      {{"log-size", "size", "64M", "most bytes of the event stream in one rank's log, 64K to 64G", {}},
       [](Options& o, std::string_view v) {
         return set_size(o.log_size, v) && o.log_size >= (64 << 10) &&
                o.log_size <= (std::uint64_t{64} << 30);
       },
       [](const Options& o) { return format_size(o.log_size); }},
  };
  return table;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

const char* valid_form(const OptionSpec& spec) {
  if (!std::strcmp(spec.type, "size")) return "a size such as 4096, 16K, 1.5M or 2G";
  if (!std::strcmp(spec.type, "count")) return "a whole number";
  if (!std::strcmp(spec.type, "share")) return "a share such as 0.5%, or off";
  if (!std::strcmp(spec.type, "time")) return "a time such as 500us, 5ms or 1s";
  return "a text";
}

template <class T>
std::optional<T> parse_scaled(std::string_view text,
                              std::initializer_list<std::pair<std::string_view, double>> units, double most) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || std::signbit(value) || !(value >= 0)) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  for (const auto& [name, scale] : units) {
    if (unit != name) continue;
    const double scaled = value * scale;
    if (scaled > most || (value > 0 && scaled < 1) || (scale == 1 && scaled != std::floor(scaled)))
      return std::nullopt;
    return static_cast<T>(std::llround(scaled));
  }
  return std::nullopt;
}

}  // namespace

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> list;
    for (const auto& row : rows()) list.push_back(row.spec);
    return list;
  }();
  return specs;
}

Error set_option(Options& options, std::string_view name, std::string_view value) {
  for (const auto& row : rows()) {
    if (name != row.spec.name) continue;
    const auto& choices = row.spec.choices;
    const std::string shown(value.substr(0, 80));
    if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())
      return Error::make(EINVAL, "option %s: '%s' is not one of: %s", row.spec.name, shown.c_str(),
                         joined(choices).c_str());
    if (row.set(options, value)) return {};
    if (row.spec.form)
      return Error::make(EINVAL, "option %s: '%s' is not valid; expected %s%s", row.spec.name, shown.c_str(),
                         row.spec.form, name == "device" ? device_hint(shown).c_str() : "");
    return Error::make(EINVAL, "option %s: '%s' is not valid; expected %s (%s)", row.spec.name, shown.c_str(),
                       valid_form(row.spec), row.spec.text);
  }
  std::vector<std::string> names;
  for (const auto& row : rows()) names.emplace_back(row.spec.name);
  return Error::make(EINVAL, "unknown option '%s'; valid options: %s",
                     std::string(name.substr(0, 60)).c_str(), joined(names).c_str());
}

Error parse_options(Options& options, std::string_view text) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (item.empty()) continue;
    const auto equals = item.find('=');
    Error error;
    if (item == "off" || item == "on") {
      error = set_option(options, "off", item == "off" ? "yes" : "no");
    } else if (equals == std::string_view::npos) {
      error =
          Error::make(EINVAL, "'%s' is not of the form name=value", std::string(item.substr(0, 80)).c_str());
    } else {
      error = set_option(options, item.substr(0, equals), item.substr(equals + 1));
    }
    if (error) return error;
  }
  return {};
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
  const char* text = std::getenv("PINION");
  return text ? parse_options(options, text) : Error{};
}

std::string format_options(const Options& options) {
  static const Options defaults;
  std::string text;
  for (const auto& row : rows()) {
    const std::string value = row.get(options);
    if (value != row.get(defaults)) text += (text.empty() ? "" : ",") + (row.spec.name + ("=" + value));
  }
  return text;
}

const char* to_string(RetentionKind kind) { return kRetentionNames[static_cast<int>(kind)]; }
const char* to_string(PolicyKind kind) { return kPolicyNames[static_cast<int>(kind)]; }
const char* to_string(RemoteKeys keys) { return kRemoteKeysNames[static_cast<int>(keys)]; }
const char* to_string(MonitorKind kind) { return kMonitorNames[static_cast<int>(kind)]; }

std::optional<bool> list_holds(std::string_view list, int rank) {
  bool holds = list.empty();
  while (!list.empty()) {
    const auto colon = list.find(':');
    const auto item = list.substr(0, colon);
    list = colon == std::string_view::npos ? std::string_view{} : list.substr(colon + 1);
    const auto dash = item.find('-');
    std::uint64_t first = 0, last = 0;
    if (!set_count(first, item.substr(0, dash))) return {};
    last = first;
    if (dash != std::string_view::npos && !set_count(last, item.substr(dash + 1))) return {};
    if (last < first) return {};
    holds = holds || (rank >= 0 && first <= static_cast<std::uint64_t>(rank) &&
                      static_cast<std::uint64_t>(rank) <= last);
  }
  return holds;
}

// Their names end in a number: mlx5_0, rxe0, bnxt_re1.
std::string device_hint(std::string_view device) {
  const auto name = device.substr(0, device.find(':'));
  if (name.empty() || name.back() < '0' || name.back() > '9') return {};
  const std::string meant = "verbs:" + std::string(device);
  return is_device(meant) ? "; did you mean " + meant + "?" : "";
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr double k = 1024;
  return parse_scaled<std::uint64_t>(
      text, {{"", 1}, {"B", 1}, {"K", k}, {"M", k * k}, {"G", k * k * k}, {"T", k * k * k * k}},
      k * k * k * k * k * k);
}

std::optional<Duration> parse_duration(std::string_view text) {
  return parse_scaled<Duration>(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}, 1e18);
}

std::optional<double> parse_share(std::string_view text) {
  // In millionths of a percent.
  const auto parts = parse_scaled<std::int64_t>(text, {{"%", 1e6}}, 100e6);
  if (!parts) return std::nullopt;
  return static_cast<double>(*parts) / 1e8;
}

std::string format_share(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g%%", share * 100);
  return text;
}

std::string format_size(std::uint64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units[unit];
}

std::string format_duration(Duration d) {
  if (d != 0 && d % kSecond == 0) return std::to_string(d / kSecond) + "s";
  if (d != 0 && d % kMillisecond == 0) return std::to_string(d / kMillisecond) + "ms";
  if (d != 0 && d % kMicrosecond == 0) return std::to_string(d / kMicrosecond) + "us";
  return std::to_string(d) + "ns";
}

}  // namespace pinion
