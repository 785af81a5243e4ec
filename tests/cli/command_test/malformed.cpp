// Command lines that are wrong in one place: status 2, one line, and nothing has run.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "fixture.h"

namespace pinion::command_test {
namespace {

/// Values that are wrong behind each of these options.
struct Wrong {
  std::vector<const char*> options, values;
};

const std::vector<Wrong> kProducts = {
    // Sizes.
    {{"run --limit", "run --node-limit", "run --preregister", "compare --limit", "softroce --memory"},
     {"0.4", "nan", "inf", "-1", "-1G", "2X", "1Gi", "K", "0x10", "99999999999G", "1G2", "much"}},
    // Limits of less than a page.
    {{"run --limit", "run --node-limit", "compare --limit"}, {"1", "100", "4095"}},
    // Times.
    {{"run --tune poll=", "top --every ", "softroce --timeout "}, {"5", "-1ms", "1h", "ms", "1..5s"}},
    // Shares.
    {{"run --time-budget", "run --verify"}, {"1", "-1%", "101%", "%", "some"}},
    // Counts.
    {{"compare --repeat", "run --limit-regions"}, {"-1", "1.5", "1e3", "0x", "many", "99999999999999999999"}},
    // Choices.
    {{"run --retention", "run --device", "run --nic", "run --monitor", "run --front", "run --cuda",
      "run --remote-keys", "compare --retention", "doctor --monitor"},
     {"best", "Helper", "helper;lru"}},
    // Switches.
    {{"run --off", "run --hugepages", "compare --json", "compare --hugepages", "report x --json",
      "top --once", "info --json", "doctor --json"},
     {"=maybe", "=1", "=on"}},
    // Lists.
    {{"compare --retention"}, {"helper,", ",helper", "helper,,lru"}},
    {{"run --only-ranks"}, {"3-1", "0-", "a", "1,2", "-"}},
};

const std::vector<const char*> kOthers = {
    "",
    "runn",
    "-x",
    "--limit 2G",
    "help runn",
    "help run report",
    "version now",
    "run",
    "run --",
    "run --limit",
    "run --limits 2G",
    "run --poll 1ms",
    "run --size=3",
    "run --tune poll",
    "run --tune pol=1ms",
    "run --tune =1",
    "run --except gdb::nsys",
    "run --log a,b",
    "run --log /proc/none",
    "run --profile absent/profile",
    "run --nic ./absent.nic",
    "compare",
    "compare --repeat 0",
    "compare --repeat 1001",
    "compare --retention helper,helper",
    "compare --retention helper-limited",
    "compare --retention library",
    "report",
    "report absent",
    "report absent --jsn",
    "report --all absent",
    "report --all --html page.html absent",
    "report absent --plot picture.gif",
    "report absent --last=3",
    "top absent",
    "top --every 1ms",
    "stop",
    "stop absent",
    "stop -1",
    "stop 99999999999",
    "simulate",
    "simulate absent",
    "info colours",
    "info options more",
    "doctor more",
    "softroce",
    "softroce --cpus 0",
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Each line of a command line; one that names a value to a command with a program gets the program.
std::vector<std::string> malformed_lines() {
  std::vector<std::string> lines(kOthers.begin(), kOthers.end());
  for (const Wrong& wrong : kProducts)
    for (const std::string option : wrong.options)
      for (const std::string value : wrong.values) {
        const bool is_joined = value.front() == '=' || option.back() == '=';
        std::string line = option + (is_joined ? "" : " ") + value;
        for (const char* command : {"run ", "compare ", "softroce "})
          if (line.starts_with(command)) line += " touch ran";
        lines.push_back(std::move(line));
      }
  return lines;
}

TEST_F(Cli, MalformedCommandLinesAreOneLineAndStatus2) {
  install_harmless_preload();
  const std::vector<std::string> lines = malformed_lines();
  EXPECT_GE(lines.size(), 150u);
  for (const std::string& line : lines) {
    SCOPED_TRACE("pinion " + line);
    expect_usage_error(words_of(line), "");
  }
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

}  // namespace
}  // namespace pinion::command_test
