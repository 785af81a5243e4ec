#include "cli/run/compare_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/doctor/caches_above.h"
#include "cli/typed.h"
#include "lease/acts.h"

namespace pinion::cli {

namespace {

constexpr std::string_view kLimited = "-limited";

bool has_limit(const Options& options) {
  return options.limit != 0 || options.node_limit != 0 || options.limit_regions != 0;
}

std::vector<std::string> default_names(const Options& options) {
  std::vector<std::string> names{"on-demand", "leave-pinned", "helper"};
  if (!may_act_below(options)) return names;
  names.insert(names.begin(), kLibrary);
  if (!has_limit(options)) return names;
  names.insert(names.begin() + 1, "library-limited");
  names.emplace_back("helper-limited");
  return names;
}

Row row_of(const std::string& name, const Options& options) {
  Row row{name, name, name.ends_with(kLimited)};
  if (row.limited) row.retention.resize(name.size() - kLimited.size());
  if (row.is_library() && !may_act_below(options))
    throw UsageError(fmt::format(
        "--retention {}: the libraries' own caches are compared with where Pinion acts below them "
        "(--front verbs, or an active RDMA port): not here",
        name));
  if (row.limited && row.retention == kOff)
    throw UsageError("--retention off-limited: without Pinion there is no limit");
  if (row.limited && !has_limit(options))
    throw UsageError(fmt::format("--retention {}: needs --limit, --node-limit or --limit-regions", name));
  Options checked = options;
  if (row.has_pinion())
    if (const Error error = set_option(checked, "retention", row.retention)) throw UsageError(error.message);
  return row;
}

/// The limit of each process, less the libraries' own memory.
std::uint64_t left_beside(const LibrariesPart& part, const Options& options) {
  std::uint64_t left = UINT64_MAX;
  const auto bound = [&](const char* name, std::uint64_t limit, std::uint64_t kept, std::uint64_t processes) {
    if (limit == 0) return;
    if (limit <= kept)
      throw Failure(
          fmt::format("--{} {} has no room beside the {} bytes that the libraries keep for themselves", name,
                      limit, kept));
    left = std::min(left, (limit - kept) / std::max<std::uint64_t>(1, processes));
  };
  bound("limit", options.limit, part.most_bytes, 1);
  bound("node-limit", options.node_limit, part.sum_bytes, part.processes);
  return left;
}

}  // namespace

std::vector<Row> rows_of(const std::vector<std::string>& names, const Options& options) {
  std::vector<Row> rows;
  for (const std::string& name : names.empty() ? default_names(options) : names) {
    rows.push_back(row_of(name, options));
    for (std::size_t i = 0; i + 1 < rows.size(); ++i)
      if (rows[i].name == name)
        throw UsageError(
            fmt::format("--retention: {} is given twice; --repeat says how often each runs", name));
  }
  return rows;
}

OptionFlags flags_of(const Row& row, const std::vector<Row>& rows, OptionFlags flags) {
  flags.set("retention", row.retention);
  const bool some_are = std::any_of(rows.begin(), rows.end(), [](const Row& other) { return other.limited; });
  if (some_are && !row.limited)
    for (const char* limit : {"limit", "node-limit", "limit-regions"}) flags.set(limit, "0");
  return flags;
}

Environment library_variables(const Row& row, const Options& options, const LibrariesPart& part) {
  Environment variables;
  if (!row.limited) return variables;
  const std::uint64_t bytes = left_beside(part, options);
  const std::uint64_t regions = options.limit_regions;
  if (regions != 0 && regions <= part.most_regions)
    throw Failure(
        fmt::format("--limit-regions {} has no room beside the {} that the libraries keep for themselves",
                    regions, part.most_regions));
  for (const CacheAbove& cache : caches_above()) {
    for (const std::string& name : cache.most_bytes)
      if (bytes != UINT64_MAX) variables[name] = fmt::format("{}", bytes);
    for (const std::string& name : cache.most_regions)
      if (regions != 0) variables[name] = fmt::format("{}", regions - part.most_regions);
  }
  return variables;
}

std::string typed(const Row& row, const OptionFlags& flags, const Environment& variables,
                  const CommandLine& command) {
  std::string text;
  for (const auto& [name, value] : variables) text += fmt::format("{}={} ", name, quoted(value));
  if (row.has_pinion()) text += typed_run(flags.options());
  return text + quoted(command);
}

}  // namespace pinion::cli
