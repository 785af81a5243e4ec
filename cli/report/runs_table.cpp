#include "cli/report/runs_table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "cli/report/report_tables.h"
#include "cli/text.h"
#include "runlog/node_file.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

/// Returns the logs in a directory and in all that are in it; links are not followed.
std::vector<fs::path> logs_below(const std::string& directory) {
  std::vector<fs::path> files;
  std::error_code failed;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(directory, kSkip, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().extension() == ".plog" && runlog::is_log(entry->path())) files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

std::time_t last_write(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_mtime : 0;
}

/// The logs of one run in one directory, as they are read.
struct Part {
  std::time_t written = 0;
  std::vector<runlog::Log> logs;
};

std::string state_text(const KeptRun& run) {
  return run.running ? "running" : fmt::format("{:%F %R}", fmt::localtime(run.written));
}

}  // namespace

std::vector<KeptRun> runs_in(const std::vector<std::string>& directories, std::vector<std::string>& unread) {
  // A run of an older version has no name, so that each of its files counts as one.
  std::map<std::pair<std::string, std::string>, Part> parts;
  for (const std::string& directory : directories) {
    for (const fs::path& file : logs_below(directory)) {
      const auto take = [&](runlog::Log&& log) {
        const std::string name = log.header.run ? std::to_string(log.header.run) : file.string();
        Part& part = parts[{file.parent_path(), name}];
        part.written = std::max(part.written, last_write(file));
        part.logs.push_back(std::move(log));
      };
      if (const Error error = runlog::for_each_state({file.string()}, take))
        unread.emplace_back(error.message);
    }
  }
  std::vector<KeptRun> runs;
  for (auto& [name, part] : parts) {
    KeptRun run{name.first, part.written, false, runlog::analyse(part.logs)};
    run.running = std::any_of(run.report.per_rank.begin(), run.report.per_rank.end(),
                              [](const runlog::RankReport& rank) { return rank.running; });
    runs.push_back(std::move(run));
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const KeptRun& a, const KeptRun& b) { return a.written > b.written; });
  return runs;
}

std::size_t folders_with_logs(const std::vector<std::string>& directories) {
  std::set<fs::path> folders;
  for (const std::string& directory : directories)
    for (const fs::path& file : logs_below(directory))
      if (file.parent_path() != fs::path(directory)) folders.insert(file.parent_path());
  return folders.size();
}

std::string runs_text(const std::vector<KeptRun>& runs) {
  constexpr std::size_t kOfCommand = 40;
  Table table({"logs: command", "ended", "nodes", "ranks", "length", "peak", "mean", "time lost"});
  for (const KeptRun& run : runs) {
    const runlog::Report& r = run.report;
    const std::string command =
        r.command.size() > kOfCommand ? r.command.substr(0, kOfCommand) + "..." : r.command;
    table.add({fmt::format("{}: {}", run.directory, command), state_text(run), count_text(r.nodes.size()),
               count_text(static_cast<std::uint64_t>(r.ranks)), seconds_text(r.wall_seconds),
               is_measured(r) ? "-" : bytes_text(static_cast<double>(r.registered().peak)),
               is_measured(r) ? "-" : bytes_text(r.registered().mean),
               percent_text(std::max(0.0, r.share_added()))});
  }
  return table.text();
}

Json runs_json(const std::vector<KeptRun>& runs) {
  Json all = Json::array();
  for (const KeptRun& run : runs) {
    const runlog::Report& r = run.report;
    Json json;
    json["logs"] = run.directory;
    json["command"] = r.command;
    json["running"] = run.running;
    json["written_unix_seconds"] = run.written;
    json["nodes"] = r.nodes.size();
    json["ranks"] = r.ranks;
    json["wall_seconds"] = r.wall_seconds;
    // Pinion registers nothing in a run that it only measures.
    json["acts"] = runlog::to_string(r.acts);
    json["registered_peak_bytes"] = is_measured(r) ? Json(nullptr) : Json(r.registered().peak);
    json["registered_mean_bytes"] = is_measured(r) ? Json(nullptr) : Json(r.registered().mean);
    json["seconds_added"] = r.cost.added();
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace pinion::cli
