// `pinion top`: a running job live in the terminal, from its logs.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/shown_text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/report/top_view.h"

namespace pinion::cli {

namespace {

struct TopArguments {
  std::vector<std::string> logs{"."};
  bool once = false;
  std::string every = "1s";
};

struct Screen {
  std::size_t columns = 0, lines = 0;  ///< 0: any number
};

/// Asked before each picture: the user may have resized it.
Screen screen() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row > 1 ? size.ws_row - 1u : 0u};
}

Error read_rows(const std::vector<std::string>& logs, std::vector<TopRow>& rows) {
  return runlog::for_each_state(logs, [&](const runlog::Log& log) { rows.push_back(top_row(log)); });
}

void show_once(const TopArguments& arguments) {
  std::vector<TopRow> rows;
  if (const Error error = read_rows(arguments.logs, rows)) throw UsageError(error.message);
  fmt::print("{}", top_text(std::move(rows), 0, 0));
}

/// The terminal as it was, for the handler of signals that end the command.
termios before;

/// While it lives, keys come one by one, and are not shown.
class Keys {
 public:
  Keys() {
    are_ours_ = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp() && ::tcgetattr(STDIN_FILENO, &before) == 0;
    if (!are_ours_) return;
    struct sigaction action {};
    action.sa_handler = [](int signal) {
      ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
      ::raise(signal);
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaction(signal, &action, nullptr);
    termios now = before;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~Keys() {
    if (are_ours_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// Waits so long, or until the user wants to quit, which it returns.
  bool quit_within(Duration time) const {
    for (const Time end = monotonic_now() + time; monotonic_now() < end;) {
      pollfd keys{are_ours_ ? STDIN_FILENO : -1, POLLIN, 0};
      const Duration left = std::max<Duration>(end - monotonic_now(), 0);
      if (::poll(&keys, 1, static_cast<int>(left / kMillisecond) + 1) <= 0) continue;
      char key = 0;
      if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return true;
    }
    return false;
  }

 private:
  bool are_ours_ = false;
};

/// Shows pictures until the job has ended, or the user presses q. A log that cannot be read any more is named
/// below the last picture.
void show_live(const TopArguments& arguments, Duration every) {
  const bool has_colours = std::getenv("NO_COLOR") == nullptr;
  const Keys keys;
  std::string picture;
  for (bool goes_on = true; goes_on;) {
    std::vector<TopRow> rows;
    std::string note;
    const Screen size = screen();
    if (const Error error = read_rows(arguments.logs, rows)) {
      if (picture.empty()) throw UsageError(error.message);
      note = printable(error.message) + "\n";
    } else {
      goes_on = std::any_of(rows.begin(), rows.end(), [](const TopRow& row) { return row.is_running; });
      picture = top_text(std::move(rows), size.columns, size.lines);
      if (has_colours) picture = coloured(picture);
    }
    // Home, the picture, and the rest of the screen cleared.
    fmt::print("\033[H\033[J{}{}", picture, note);
    std::fflush(stdout);
    if (goes_on && keys.quit_within(every)) return;
  }
}

void top(const TopArguments& arguments) {
  const std::optional<Duration> every = parse_duration(arguments.every);
  if (!every || *every < 10 * kMillisecond)
    throw UsageError(
        fmt::format("--every: '{}' is no time of 10ms or more, such as 500ms or 2s", arguments.every));
  if (arguments.once || ::isatty(STDOUT_FILENO) == 0) return show_once(arguments);
  show_live(arguments, *every);
}

}  // namespace

void add_top(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("top", "Show a running job: registered memory, misses and spent time");
  auto arguments = std::make_shared<TopArguments>();
  sub->add_option("logs", arguments->logs, "log directories or files of one run [.]")->type_name("DIR");
  sub->add_flag("--once", arguments->once, "one picture; so too where standard output is no terminal")
      ->disable_flag_override();
  sub->add_option("--every", arguments->every, "time between two pictures [1s]")->type_name("TIME");
  sub->callback([arguments] { top(*arguments); });
}

}  // namespace pinion::cli
