// `pinion stop`: Pinion lets go of everything in a running process, or a whole job here, and stands aside.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "base/units.h"
#include "cli/command.h"
#include "cli/text.h"
#include "node/stop_request.h"
#include "runlog/reader.h"

namespace pinion::cli {

namespace {

constexpr auto kPatience = std::chrono::seconds(10);

/// A process of a job, as its log shows it.
struct Named {
  pid_t process;
  std::string text;  ///< "process 4711, rank 3"
};

/// Whether the process has loaded Pinion; true where that cannot be seen.
bool may_have_pinion(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  if (!maps) return true;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/libpinion") != std::string::npos) return true;
  return false;
}

uid_t owner_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw UsageError(path + ": its owner cannot be found out");
  return status.st_uid;
}

/// The job's processes that run on this host. A log can name any process: only those of the log's owner
/// count.
std::vector<Named> processes_of_job(const std::string& path) {
  char host[sizeof runlog::ProcessHeader::host] = {};
  ::gethostname(host, sizeof host - 1);
  std::vector<Named> found;
  const auto add = [&](const runlog::Log& log) {
    const auto process = static_cast<pid_t>(log.header.process);
    if (!log.written_to || log.live.complete != 0 || log.header.host != std::string(host) || process <= 0 ||
        !may_have_pinion(process))
      return;
    struct stat status {};
    if (::stat(fmt::format("/proc/{}", process).c_str(), &status) != 0 || status.st_uid != owner_of(log.path))
      return;
    const std::string rank = log.header.rank >= 0 ? fmt::format(", rank {}", log.header.rank) : "";
    found.push_back({process, fmt::format("process {}{}", process, rank)});
  };
  if (const Error error = runlog::for_each_state({path}, add)) throw UsageError(error.message);
  if (found.empty()) throw UsageError(fmt::format("{}: no process of that job runs on this host", path));
  return found;
}

std::vector<Named> processes_named(const std::vector<std::string>& targets) {
  std::vector<Named> all;
  for (const std::string& target : targets) {
    const auto number = parse_count(target);
    if (!number) {
      const std::vector<Named> job = processes_of_job(target);
      all.insert(all.end(), job.begin(), job.end());
    } else if (*number == 0 || *number > INT32_MAX) {
      throw UsageError(fmt::format("'{}' is no process", target));
    } else {
      all.push_back({static_cast<pid_t>(*number), fmt::format("process {}", *number)});
    }
  }
  return all;
}

/// Prints the process's answer; false: there is none yet.
bool show_answer(const Named& named) {
  const auto answer = node::stop_answer(named.process);
  if (!answer) return false;
  if (answer->registered == 0)
    fmt::print("{}: stopped, nothing is registered\n", named.text);
  else
    fmt::print("{}: stopped, {} stay registered until their transfers end\n", named.text,
               bytes_text(static_cast<double>(answer->registered)));
  return true;
}

void stop(const std::vector<std::string>& targets) {
  std::vector<Named> waiting = processes_named(targets);
  for (const Named& named : waiting) {
    if (::kill(named.process, 0) == 0 && !may_have_pinion(named.process))
      throw UsageError(fmt::format("{} does not run under Pinion", named.text));
    const Error error = node::ask_to_stop(named.process);
    if (error.code == EPERM || error.code == ESRCH) throw UsageError(error.message);
    if (error) throw Failure(error.message);
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    std::erase_if(waiting, show_answer);
    if (waiting.empty() || std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (waiting.empty()) return;
  throw Failure(fmt::format(
      "{}{}: no answer within 10 s. Pinion has not begun there, or its helper is held "
      "up; it stops as soon as the helper looks",
      waiting.front().text, waiting.size() > 1 ? fmt::format(" and {} more", waiting.size() - 1) : ""));
}

}  // namespace

void add_stop(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("stop", "Make Pinion let go of everything in a running process, and stand aside");
  auto targets = std::make_shared<std::vector<std::string>>();
  sub->add_option("targets", *targets,
                  "process numbers, or log directories: the job's processes on this host; of this user, or "
                  "as root of any")
      ->type_name("PID|DIR")
      ->required();
  sub->callback([targets] { stop(*targets); });
}

}  // namespace pinion::cli
