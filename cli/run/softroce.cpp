// `pinion softroce`: a command in a virtual machine with a real kernel RDMA stack, for users without a
// NIC. This file checks the arguments; softroce/machine, beside this command, does the work.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/parser.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLeastMemory = std::uint64_t{512} << 20;

struct Arguments {
  std::string memory = "2G";
  std::string timeout = "600s";
  unsigned cpus = 1;
  std::vector<std::string> shares;
  bool kvm = false;
  CommandLine command;
};

std::string machine() {
  const fs::path script = installation() / "share/pinion/softroce/machine";
  if (::access(script.c_str(), X_OK) != 0) throw UsageError(fmt::format("missing: {}", script.string()));
  return script.string();
}

int boot(const Arguments& given) {
  if (given.command.empty()) throw UsageError("no command given: pinion softroce [options] -- CMD...");
  const auto memory = parse_size(given.memory);
  if (!memory || *memory < kLeastMemory || *memory > std::uint64_t{1} << 40)
    throw UsageError(fmt::format("--memory {}: valid is a size from 512M to 1T", given.memory));
  const auto timeout = parse_duration(given.timeout);
  if (!timeout || *timeout < kSecond)
    throw UsageError(fmt::format("--timeout {}: valid is a time from 1s, such as 90s", given.timeout));
  CommandLine whole{machine(), fmt::format("{}M", *memory >> 20), fmt::format("{}", *timeout / kSecond),
                    fmt::format("{}", given.cpus), given.kvm ? "kvm" : "tcg"};
  for (const std::string& share : given.shares) {
    std::error_code error;
    const fs::path directory = fs::canonical(share, error);
    if (error || !fs::is_directory(directory))
      throw UsageError(fmt::format("--share {}: no such directory", share));
    if (directory.string().find('\n') != std::string::npos)
      throw UsageError("--share: a directory's name has a line break");
    whole.push_back(directory.string());
  }
  whole.emplace_back("--");
  whole.insert(whole.end(), given.command.begin(), given.command.end());
  return execute(whole, {});
}

}  // namespace

void add_softroce(CLI::App& app, const CommandLine& command, int& status) {
  auto given = std::make_shared<Arguments>();
  CLI::App* sub =
      app.add_subcommand("softroce", "Run a command in a machine with a kernel RDMA stack (Soft-RoCE)");
  sub->add_option("--memory", given->memory, "memory of the machine [2G]")->type_name("SIZE");
  sub->add_option("--timeout", given->timeout, "time after which it is stopped, with status 124 [600s]")
      ->type_name("TIME");
  sub->add_option("--cpus", given->cpus, "processors of the machine [1]")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  sub->add_option("--share", given->shares, "directory in which the command's files stay")->type_name("DIR");
  sub->add_flag("--kvm", given->kvm, "run by the processor's virtualization instead of QEMU's emulation")
      ->disable_flag_override();
  add_program(*sub);
  sub->callback([given, &command, &status] {
    given->command = command;
    status = boot(*given);
  });
}

}  // namespace pinion::cli
