// Runs the `pinion` command from outside, in a directory of its own. Needs build/bin/pinion beside
// build/tests/; sanitizer builds have none.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/range.h"
#include "runlog_files.h"

namespace pinion::test {

namespace fs = std::filesystem;

inline std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Outcome {
  int status = -1;
  std::string out, err;
  long lines_of_error() const { return std::count(err.begin(), err.end(), '\n'); }
};

class Cli : public ::testing::Test {
 protected:
  // A copy of the command in a tree of its own, with or without the preload library; what is not compiled is
  // the build's.
  void SetUp() override {
    if (!fs::exists(build() / "bin/pinion")) GTEST_SKIP() << "the command is not built";
    fs::create_directories(root() / "lib");
    copy_of_build("bin/pinion");
    fs::create_directory_symlink(build() / "share", root() / "share");
    for (const char* name : {"PINION", "PINION_CONFIG", "LD_PRELOAD", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                             "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_EXPORT_ENV",
                             "OMPI_MCA_orte_fork_agent", "PRTE_MCA_odls_base_exec_agent", "PRTE_MCA_rtos"})
      ::unsetenv(name);
  }
  void TearDown() override {
    ::unsetenv("PINION");
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    ::unsetenv("PINION_TEST_INFINIBAND");
    for (const char* name :
         {"LD_PRELOAD", "PINION_CONFIG", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_EXPORT_ENV",
          "OMPI_MCA_orte_fork_agent", "PRTE_MCA_odls_base_exec_agent", "PRTE_MCA_rtos"})
      ::unsetenv(name);
  }

  static fs::path build() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path(); }
  fs::path root() const { return directory_.path(); }
  void copy_of_build(const fs::path& part) const {
    fs::create_directories((root() / part).parent_path());
    fs::copy_file(build() / part, root() / part);
  }
  std::string preload() const { return (root() / "lib/libpinion-preload.so").string(); }

  // A library that changes nothing, in the preload's place.
  void install_harmless_preload() {
    Dl_info info{};
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&std::tgamma)), &info), 0);
    fs::copy_file(fs::canonical(info.dli_fname), preload());
  }

  pid_t start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (root() / executable_).string());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::chdir(root().c_str()) != 0 || !std::freopen("out", "w", stdout) ||
          !std::freopen("err", "w", stderr))
        ::_exit(99);
      ::execv(pointers[0], pointers.data());
      ::_exit(98);
    }
    return child;
  }

  Outcome finish(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), content_of(root() / "out"),
            content_of(root() / "err")};
  }

  Outcome pinion(std::vector<std::string> arguments) { return finish(start(std::move(arguments))); }
  /// On a PATH without MPI, whose launchers take seconds.
  Outcome without_mpi(std::vector<std::string> arguments) {
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", "/nonexistent", 1);
    Outcome outcome = pinion(std::move(arguments));
    ::setenv("PATH", path.c_str(), 1);
    return outcome;
  }

  /// Its first; 0: none yet.
  static pid_t child_of(pid_t process) {
    const std::string number = std::to_string(process);
    return std::atoi(content_of("/proc/" + number + "/task/" + number + "/children").c_str());
  }

  /// A log in the directory.
  static fs::path first_log(const fs::path& directory) {
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.path().extension() == ".plog") return entry.path();
    return {};
  }

  /// From here on the node has a NIC, which can be opened.
  void make_nic() {
    const fs::path node = root() / "infiniband";
    fs::create_directories(node / "made0/ports/1");
    fs::create_directories(node / "dev");
    std::ofstream(node / "dev/uverbs0") << "";
    std::ofstream(node / "made0/ports/1/state") << "4: ACTIVE\n";
    ::setenv("PINION_TEST_INFINIBAND", node.c_str(), 1);
  }

  // Exit status 2, nothing on standard output, one line that contains `reason`.
  void expect_usage_error(std::vector<std::string> arguments, const char* reason) {
    const Outcome o = pinion(arguments);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(o.lines_of_error(), 1) << o.err;
    EXPECT_NE(o.err.find(reason), std::string::npos) << o.err;
  }

  static void expect_narrow(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }

  // The log of one rank: one page registered for half of a run of 2 s, one miss and one hit. `run` and `job`
  // as of another one; `log_bytes` of 0 leaves no room for events.
  void write_log(const fs::path& directory, int rank, std::uint32_t run = 0,
                 std::uint64_t log_bytes = 1 << 16, Time end = 12 * kSecond) {
    using namespace runlog;
    const std::uint64_t page = page_size();
    RunInfo info;
    info.job = info.run = run;
    info.command = "./app";
    info.retention = "helper";
    info.predictor = "shortest";
    info.device = "pins pages";
    info.rank = rank;
    info.ranks = info.local_ranks = 2;
    info.cores = 8;
    info.limit_bytes = 1 << 30;
    info.start = 10 * kSecond;
    LogWriter writer;
    const Error error = writer.open(directory.string(), info, log_bytes);
    ASSERT_FALSE(error) << error.message;
    const std::uint64_t frame = 1;
    writer.add_site(5, &frame, 1);
    writer.for_each_site([](SiteEntry& site) { std::strcpy(site.name, "exchange+0x10 (app)"); });
    writer.append(event(EventKind::registration, 10 * kSecond, 10 * kSecond, 16 * page, page));
    writer.append(lease(10 * kSecond, 10 * kSecond + 100, 16 * page, page, 5, runlog::Outcome::miss));
    writer.append(lease(11 * kSecond - 100, 11 * kSecond, 16 * page, page, 5));
    writer.append(event(EventKind::deregistration, 11 * kSecond, 11 * kSecond, 16 * page, page));
    Series series;
    series.start(10 * kSecond);
    series.step(10 * kSecond, page);
    series.step(11 * kSecond, 0);
    series.advance(end);
    Counters c{};
    c.acquires = 2;
    c.hits = c.misses = c.registrations = c.deregistrations = c.reuses = c.within_5 = 1;
    c.registration_ns = 20 * kMillisecond;
    c.registered_peak_bytes = page;
    c.registered_byte_ns = series.byte_ns();
    writer.finish(c, series, end, 4096);
  }

  fs::path executable_ = "bin/pinion";  ///< that has the commands
  TemporaryDirectory directory_;
};

}  // namespace pinion::test
