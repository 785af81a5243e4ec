#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace pinion::cli {

namespace {

constexpr std::size_t kNarrowest = 79;  ///< of a terminal; a longer line would stay when it is overwritten

}  // namespace

Progress::Progress(std::string command)
    : command_(std::move(command)), terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::step(const std::string& what) {
  if (!terminal_) return;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_).count();
  const std::string line = fmt::format("{}: {} ({} s)", command_, what, seconds);
  fmt::print(stderr, "\r\033[K{}", line.substr(0, kNarrowest));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace pinion::cli
