#include "runlog/one_run.h"

#include <algorithm>

namespace pinion::runlog {

namespace {

template <class T>
bool meet(const std::set<T>& a, const std::set<T>& b) {
  return std::any_of(a.begin(), a.end(), [&](const T& item) { return b.count(item) > 0; });
}

}  // namespace

void OneRun::add(const Log& log) {
  const ProcessHeader& header = log.header;
  if (files_.empty() || files_.back().path != log.path)
    files_.push_back({log.path, header.command, header.host, {}, {}, header.ranks, 0});
  File& file = files_.back();
  if (header.run != 0) file.runs.insert(header.run);
  if (header.rank >= 0) file.ranks.insert(header.rank);
  file.job_ranks = std::max(file.job_ranks, header.ranks);
  ++file.processes;
}

bool OneRun::same_run(const File& a, const File& b) {
  if (!a.runs.empty() || !b.runs.empty()) return meet(a.runs, b.runs);
  return !a.ranks.empty() && !b.ranks.empty() && a.job_ranks == b.job_ranks && !meet(a.ranks, b.ranks);
}

std::string OneRun::text(const File& file) {
  constexpr std::size_t kOfPath = 60, kOfCommand = 40, kOfHost = 16;  // two of them in an error
  std::string text =
      file.path.size() > kOfPath ? "..." + file.path.substr(file.path.size() - kOfPath) : file.path;
  const std::size_t program_end = std::min(file.command.find(' '), file.command.size());
  const std::size_t program = file.command.rfind('/', program_end) + 1;  // 0: it has no directory
  text += " (" + file.command.substr(program, kOfCommand) + ", ";
  text += file.ranks.empty()
              ? "process without a rank"
              : std::to_string(file.processes) + " of " + std::to_string(file.job_ranks) + " ranks";
  return text + " on " + file.host.substr(0, kOfHost) + ")";
}

Error OneRun::error() const {
  if (files_.empty()) return {};
  File sum = files_.front();
  for (std::size_t i = 1; i < files_.size(); ++i) {
    const File& file = files_[i];
    if (!same_run(sum, file))
      return Error::make(EINVAL, "two runs: %s and %s; give the files of one", text(files_.front()).c_str(),
                         text(file).c_str());
    sum.runs.insert(file.runs.begin(), file.runs.end());
    sum.ranks.insert(file.ranks.begin(), file.ranks.end());
  }
  return {};
}

}  // namespace pinion::runlog
