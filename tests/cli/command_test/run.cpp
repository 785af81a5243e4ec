// `pinion run`: options and statuses that pass on, launchers, logs, signals.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fixture.h"
#include "support/eventually.h"
#include "support/in_child.h"

namespace pinion::command_test {
namespace {

TEST_F(Cli, RunPassesOptionsAndStatusOn) {
  install_harmless_preload();
  ::setenv("PINION", "window=3", 1);
  ::setenv("LD_PRELOAD", "/other.so", 1);
  const Outcome o = pinion(
      {"run", "--limit", "2G", "--log", "logs", "--", "sh", "-c", "echo $PINION; echo $LD_PRELOAD; exit 7"});
  EXPECT_EQ(o.status, 7);
  EXPECT_EQ(o.out.substr(0, o.out.find('\n')), "window=3,limit=2G,log=" + (root() / "logs").string());
  EXPECT_NE(o.out.find(preload() + ":/other.so\n"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("no rank left a log: the command failed with exit status 7"), std::string::npos)
      << o.err;
}

TEST_F(Cli, RunRaisesTheSoftLimitOfLockedMemory) {
  install_harmless_preload();
  test::in_child([&] {
    ASSERT_NO_FATAL_FAILURE(limit_locked_memory());
    const std::vector<std::string> program{"--", "sh", "-c", "ulimit -S -l"};
    const auto run = [&](std::vector<std::string> words) {
      words.insert(words.end(), program.begin(), program.end());
      return pinion(words);
    };
    const Outcome raised = run({"run"});
    EXPECT_EQ(raised.out, "4096\n");
    for (const char* text : {"raised from 64.0 KiB", "limit, 4.00 MiB"})
      EXPECT_NE(raised.err.find(text), std::string::npos) << raised.err;
    EXPECT_EQ(run({"run", "--retention", "observe"}).out, "64\n");
    ::setenv("PINION", "off", 1);
    EXPECT_EQ(run({"run"}).out, "64\n");
  });
}

// The options that `pinion run` passes to launchers, as a rank on another node has them: without this
// environment.
TEST_F(Cli, OpenMpisAgentCarriesEveryOption) {
  install_harmless_preload();
  std::ofstream(root() / "options.conf") << "limit=2G\n";
  ::setenv("PINION_CONFIG", "options.conf", 1);
  ::setenv("PINION", "threshold=8K", 1);
  for (const char* variable :
       {"OMPI_MCA_orte_fork_agent", "PRTE_MCA_odls_base_exec_agent", "PRTE_MCA_rtos"}) {
    const Outcome o = pinion(
        {"run", "--log", "my logs", "--", "sh", "-c",
         std::string("agent=${") + variable +
             "#exec-agent=}; env -i PATH=$PATH PINION=window=3 OMPI_COMM_WORLD_RANK=1 $agent sh -c 'echo "
             "\"$PINION|$PINION_CONFIG|$LD_PRELOAD|$PINION_SUMMARY\"'"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.out, "window=3,limit=2G,threshold=8K,log=" + (root() / "my logs").string() + "||" +
                         preload() + "|\n")
        << variable;
  }
}

TEST_F(Cli, WhatTheUserToldLaunchersStays) {
  install_harmless_preload();
  ::setenv("OMPI_MCA_orte_fork_agent", "strace -f", 1);
  ::setenv("PRTE_MCA_odls_base_exec_agent", "ltrace -f", 1);
  ::setenv("PRTE_MCA_rtos", "recoverable", 1);
  ::setenv("SLURM_EXPORT_ENV", "HOME", 1);
  const Outcome o = pinion({"run", "--", "sh", "-c",
                            "echo $OMPI_MCA_orte_fork_agent; echo $PRTE_MCA_odls_base_exec_agent; echo "
                            "$PRTE_MCA_rtos; echo $SLURM_EXPORT_ENV"});
  EXPECT_NE(o.out.find(" -- strace -f\n"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -- ltrace -f\nexec-agent="), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -- ltrace -f,recoverable\nHOME,ASAN_OPTIONS,LD_PRELOAD,PINION,"), std::string::npos)
      << o.out;
}

TEST_F(Cli, HydrasVariablesAreAddedWhereItForwardsFew) {
  install_harmless_preload();
  fs::create_symlink("/bin/echo", root() / "mpiexec");
  Outcome o = pinion({"run", "--", "./mpiexec", "-f", "hosts", "./app"});
  EXPECT_EQ(o.out, "-f hosts ./app\n");
  o = pinion({"run", "--", "./mpiexec", "-genvnone", "-f", "hosts", "./app"});
  EXPECT_NE(o.out.find("-genv LD_PRELOAD " + preload() + " -genv PINION log="), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -genvnone -f hosts ./app\n"), std::string::npos) << o.out;
}

// A batch script only has the variables of a task: `run` starts the launcher there, and sums up.
TEST_F(Cli, ABatchScriptIsNoRank) {
  install_harmless_preload();
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_NE(pinion({"run", "--", "true"}).err.find("no rank left a log"), std::string::npos);
  EXPECT_NE(
      pinion({"run", "--except", "tru*", "--", "true"})
          .err.find("left a log: --except 'tru*' leaves executables out; in others, did the program use"),
      std::string::npos);
  ::setenv("SLURM_STEP_ID", "4294967290", 1);  // the shell of an allocation
  EXPECT_NE(pinion({"run", "--", "true"}).err.find("no rank left a log"), std::string::npos);
  ::setenv("SLURM_STEP_ID", "0", 1);
  EXPECT_EQ(pinion({"run", "--", "true"}).err, "");
}

TEST_F(Cli, MissingRanksAreNamed) {
  write_log(root() / "logs", 1);
  const Outcome o = pinion({"report", "logs"});
  EXPECT_NE(o.out.find("1 of 2 ranks (0) left no log here"), std::string::npos) << o.out;
}

TEST_F(Cli, RunGivesTheStatusesOfShells) {
  install_harmless_preload();
  std::ofstream(root() / "data") << "no program";
  EXPECT_EQ(pinion({"run", "--", "./absent"}).status, 127);
  EXPECT_EQ(pinion({"run", "--", "./data"}).status, 126);
  EXPECT_EQ(pinion({"run", "--", "sh", "-c", "kill -TERM $$"}).status, 128 + SIGTERM);
  EXPECT_EQ(pinion({"run", "sh", "-c"}).status, 2);  // run has no option -c
}

TEST_F(Cli, OutputThatIsLostIsAFailure) {
  const std::string command = (root() / "bin/pinion").string();
  const auto status = [](const std::string& text) {
    const int whole = std::system(text.c_str());
    return WIFEXITED(whole) ? WEXITSTATUS(whole) : -1;
  };
  EXPECT_EQ(status(command + " version 2>/dev/null >/dev/full"), 1);
  EXPECT_EQ(status(command + " --help 2>/dev/null >/dev/full"), 1);
  EXPECT_EQ(status(command + " version >&-"), 0);
  EXPECT_EQ(status(command + " run --off -- sh -c 'test -e /proc/self/fd/1 || exit 5' >&-"), 5);
}

TEST_F(Cli, AMissingDirectoryForTemporaryFilesStopsNoRun) {
  install_harmless_preload();
  ::setenv("TMPDIR", "/nonexistent", 1);
  EXPECT_EQ(pinion({"run", "--", "sh", "-c", "exit 3"}).status, 3);
  ::unsetenv("TMPDIR");
}

// A run that is killed leaves its temporary log behind. Its owner's next start clears it.
TEST_F(Cli, LogsOfKilledRunsAreCleared) {
  install_harmless_preload();
  const fs::path place = root() / "tmp";
  fs::create_directories(place);
  ::setenv("TMPDIR", place.c_str(), 1);
  const auto directories = [&] {
    return std::distance(fs::directory_iterator(place), fs::directory_iterator{});
  };
  const auto start_one = [&](const std::string& ready) {
    const pid_t child =
        start({"run", "--", "sh", "-c", "echo $$ >pid; mv pid " + ready + "; exec sleep 600"});
    EXPECT_TRUE(pinion::test::eventually([&] { return fs::exists(root() / ready); })) << "it has not begun";
    return child;
  };
  const pid_t dead = start_one("first"), alive = start_one("second");
  EXPECT_EQ(directories(), 2);
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(place)) names.push_back(entry.path());
  ::kill(dead, SIGKILL);
  finish(dead);
  ::kill(std::stoi(content_of(root() / "first")), SIGKILL);
  // The killed run's processes have written this, and one of them still runs.
  fs::path left;
  for (const fs::path& name : names) {
    const int directory = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (::flock(directory, LOCK_EX | LOCK_NB) == 0) left = name;
    ::close(directory);
  }
  ASSERT_FALSE(left.empty()) << "the owner's lock ends with it";
  write_log(left, 0);
  fs::create_directory(left / "run-1");
  std::ofstream(left / "run-1" / "host.123.arena") << "bytes=0\n";
  const int writes = ::open(first_log(left).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(writes, LOCK_SH), 0);
  EXPECT_EQ(pinion({"run", "--", "true"}).status, 0);
  EXPECT_EQ(directories(), 2) << "a process goes on to write there";
  ::close(writes);
  EXPECT_EQ(pinion({"run", "--", "true"}).status, 0);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(directories(), 1) << "of the run that goes on";
  ::kill(alive, SIGTERM);
  finish(alive);
  EXPECT_EQ(directories(), 0);
  ::unsetenv("TMPDIR");
}

TEST_F(Cli, WhatIsNoLogOfADeadRunStays) {
  install_harmless_preload();
  const fs::path place = root() / "tmp", elsewhere = root() / "elsewhere";
  for (const fs::path& directory : {place, elsewhere}) fs::create_directories(directory);
  ::setenv("TMPDIR", place.c_str(), 1);
  const auto make = [&](const char* name) {
    fs::create_directory(place / name);
    fs::permissions(place / name, fs::perms::owner_all);
    return place / name;
  };
  std::ofstream(elsewhere / "host.123.arena") << "bytes=0\n";
  fs::create_symlink(elsewhere, place / "pinion-run-linked");
  std::ofstream(place / "pinion-run-afile") << "mine";
  std::ofstream(make("pinion-run-letter") / "letter.plog") << "Dear all";
  std::ofstream(make("pinion-run-notes_") / "notes") << "Dear all";
  fs::create_directory(make("pinion-run-folder") / "mine");
  fs::create_symlink(elsewhere, make("pinion-run-inside") / "run-1");
  write_log(make("pinion-run-other_"), 0);
  const fs::path log = first_log(place / "pinion-run-other_");
  fs::rename(log, log.parent_path() / "another-host.0123456789abcdef.plog");
  make("pinion-run-shared");
  fs::permissions(place / "pinion-run-shared", fs::perms::all);
  make("pinion-other");
  const auto before =
      std::distance(fs::recursive_directory_iterator(place), fs::recursive_directory_iterator{});
  make("pinion-run-empty_");
  EXPECT_EQ(pinion({"run", "--", "true"}).status, 0);
  EXPECT_FALSE(fs::exists(place / "pinion-run-empty_")) << "of a run that was killed at once";
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(place), fs::recursive_directory_iterator{}),
            before);
  EXPECT_TRUE(fs::exists(elsewhere / "host.123.arena"));
  ::unsetenv("TMPDIR");
}

TEST_F(Cli, ALogDirectoryKeepsTheFilesOfOthers) {
  install_harmless_preload();
  fs::create_directory(root() / "mine");
  for (const char* name : {"my.arena", "notes.hugepages"})
    std::ofstream(root() / "mine" / name) << "Dear all";
  std::ofstream(root() / "mine" / "host.123.arena") << "bytes=0\n";
  EXPECT_EQ(pinion({"run", "--log", "mine", "--", "true"}).status, 0);
  EXPECT_FALSE(fs::exists(root() / "mine/host.123.arena")) << "of an earlier run";
  EXPECT_EQ(content_of(root() / "mine/run-1/host.123.arena"), "bytes=0\n");
  for (const char* name : {"level.3.arena", "notes.12.hugepages", "empty.4.arena"})
    std::ofstream(root() / "mine" / name) << (name[0] == 'e' ? "" : "bytes=1\nDear all\n");
  EXPECT_EQ(pinion({"run", "--log", "mine", "--", "true"}).status, 0);
  for (const char* name : {"level.3.arena", "notes.12.hugepages"})
    EXPECT_EQ(content_of(root() / "mine" / name), "bytes=1\nDear all\n") << name;
  EXPECT_TRUE(fs::exists(root() / "mine/empty.4.arena"));
  std::ofstream(root() / "mine/letter.plog") << "Dear all";
  expect_usage_error({"run", "--log", "mine", "--", "true"}, "letter.plog: not a log of Pinion");
  for (const char* name : {"my.arena", "notes.hugepages", "letter.plog"})
    EXPECT_EQ(content_of(root() / "mine" / name), "Dear all") << name;
}

TEST_F(Cli, ALogDirectoryKeepsEarlierRuns) {
  install_harmless_preload();
  write_log(root() / "logs", 0, 7);
  ASSERT_EQ(pinion({"report", "logs"}).status, 0);
  EXPECT_EQ(pinion({"run", "--log", "logs", "true"}).status, 0);
  expect_usage_error({"report", "logs"},
                     "in this directory; 1 folder with a run in it: pinion report --all logs");
  EXPECT_EQ(pinion({"report", "logs/run-1"}).status, 0);
  write_log(root() / "logs", 0, 8);
  EXPECT_EQ(pinion({"run", "--log", "logs", "true"}).status, 0);
  write_log(root() / "logs", 1, 9);
  EXPECT_NE(pinion({"report", "logs"}).out.find("logs: 2 folders with runs in it: pinion report --all logs"),
            std::string::npos);
  const json all = json::parse(pinion({"report", "--all", "--json", "logs"}).out);
  ASSERT_EQ(all.size(), 3u);
  for (const json& run : all) {
    EXPECT_EQ(run.at("registered_peak_bytes"), page_size());
    EXPECT_EQ(run.at("acts"), "pinned");
    EXPECT_EQ(run.at("wall_seconds"), 2);
  }
  const std::string table = pinion({"report", "--all", "logs"}).out;
  for (const char* row : {"logs: ./app", "logs/run-1: ./app", "logs/run-2: ./app"})
    EXPECT_NE(table.find(row), std::string::npos) << table;
  expect_narrow(table);
}

// Two jobs write to one directory at a time.
TEST_F(Cli, ReportAllTellsJobsOfADirectoryApart) {
  write_log(root() / "logs/monday", 0, 7);
  write_log(root() / "logs/monday", 0, 8);
  EXPECT_EQ(json::parse(pinion({"report", "--all", "--json", "logs"}).out).size(), 2u);
  std::ofstream(root() / "logs/torn.plog") << content_of(first_log(root() / "logs/monday")).substr(0, 100);
  const Outcome o = pinion({"report", "--all", "logs"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.lines_of_error(), 1) << o.err;
  EXPECT_NE(o.err.find("torn.plog"), std::string::npos);
}

TEST_F(Cli, ADirectoryOfARunThatGoesOnIsRefused) {
  install_harmless_preload();
  write_log(root() / "logs", 0);
  const int file = ::open(first_log(root() / "logs").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_SH), 0);
  expect_usage_error({"run", "--log", "logs", "touch", "ran"}, "a run that goes on writes there");
  ::close(file);
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, ARunThatCannotServeIsRefused) {
  install_harmless_preload();
  ::setenv("PINION_TEST_INFINIBAND", (root() / "none").c_str(), 1);
  expect_usage_error({"run", "--front", "verbs", "touch", "ran"}, "no RDMA port of this node is active");
  expect_usage_error({"compare", "--front", "verbs", "touch", "ran"}, "no RDMA port of this node is active");
  expect_usage_error({"run", "--only-ranks", "2-3", "mpirun", "-n", "2", "touch", "ran"},
                     "--only-ranks: '2-3' holds no rank of this job, which has 0-1");
  expect_usage_error({"run", "--only-ranks", "1", "srun", "--mpi", "pmi2", "-n", "1", "touch", "ran"},
                     "rank 0 alone");
  // The program's own words, or several programs.
  std::ofstream(root() / "mpirun") << "#!/bin/sh\nexit 3\n";
  fs::permissions(root() / "mpirun", fs::perms::all);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"-n", "2", "a", ":", "-n", "2", "b"},
        {"--bind-to", "none", "a", "-n", "1"}}) {
    std::vector<std::string> words = {"run", "--only-ranks", "2-3", "./mpirun"};
    words.insert(words.end(), command.begin(), command.end());
    EXPECT_EQ(pinion(words).status, 3);
  }
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

// Their loaders end the program, or complain, where a library of glibc is preloaded.
TEST_F(Cli, ProgramsOfAnotherLoaderRunWithoutPinion) {
  install_harmless_preload();
  const auto made = [&](const std::string& command) {
    return std::system(("cd " + root().string() + " && " + command + " 2>/dev/null").c_str()) == 0;
  };
  std::ofstream(root() / "musl.c")
      << "#include <stdio.h>\n#include <stdlib.h>\n"
         "int main(void) { return puts(getenv(\"LD_PRELOAD\")) == EOF ? 1 : 5; }\n";
  ::setenv("LD_PRELOAD", (preload() + ":/absent/libother.so").c_str(), 1);  // as a rank has it
  const bool has_musl = made("LD_PRELOAD= musl-gcc musl.c -o musl");
  const std::vector<std::vector<std::string>> commands = {
      {"run", "./musl"},
      {"run", "env", "-u", "NONE", "nice", "-n", "1", "./musl"},
      {"run", "sh", "-ec", "exec ./musl with words"}};
  for (const std::vector<std::string>& command : commands) {
    if (!has_musl) break;
    const Outcome o = pinion(command);
    EXPECT_EQ(o.status, 5) << o.err;
    EXPECT_EQ(o.out, "/absent/libother.so\n");
    EXPECT_NE(o.err.find("./musl: its C library is musl (/lib/ld-musl-"), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("left a log"), std::string::npos) << o.err;
  }
  if (has_musl) {
    // A word that is data changes nothing.
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"cat", "./musl"}, {"env", "cat", "./musl"}, {"sh", "-c", "cat ./musl"}}) {
      std::vector<std::string> command = {"run"};
      command.insert(command.end(), words.begin(), words.end());
      EXPECT_EQ(pinion(command).err.find("musl"), std::string::npos) << words.front();
    }
  }
  ::unsetenv("LD_PRELOAD");
  std::ofstream(root() / "small.s") << ".globl _start\n_start: mov $1,%eax\nmov $6,%ebx\nint $0x80\n";
  if (made("as --32 small.s -o small.o && ld -m elf_i386 small.o -o small; ./small; test $? = 6")) {
    const Outcome o = pinion({"run", "./small"});
    EXPECT_EQ(o.status, 6);
    EXPECT_NE(o.err.find("./small: it is a 32-bit program: it runs without Pinion"), std::string::npos)
        << o.err;
  }
}

TEST_F(Cli, ContainersGetTheInstallation) {
  install_harmless_preload();
  for (const char* runtime : {"apptainer", "singularity", "podman"}) {
    std::ofstream(root() / runtime) << "#!/bin/sh\necho $APPTAINER_BIND $SINGULARITYENV_LD_PRELOAD\n";
    fs::permissions(root() / runtime, fs::perms::all);
  }
  const std::string prefix = root().string(), logs = (root() / "logs").string();
  ::setenv("APPTAINER_BIND", "/data", 1);
  for (const char* runtime : {"./apptainer", "./singularity"}) {
    const Outcome o = pinion({"run", "--log", "logs", runtime, "exec", "image.sif", "./app"});
    EXPECT_EQ(o.out, "/data," + prefix + "," + logs + " " + preload() + "\n");
    EXPECT_NE(o.err.find("bound in the container"), std::string::npos) << o.err;
  }
  ::unsetenv("APPTAINER_BIND");
  const auto of_podman = [&](const char* words) {
    std::string err = pinion({"run", "--log", "logs", "./podman", "run", words, "image"}).err;
    std::replace(err.begin(), err.end(), '\n', ' ');
    return err.find("podman starts programs without Pinion") != std::string::npos;
  };
  EXPECT_TRUE(of_podman("--rm"));
  EXPECT_FALSE(of_podman(("-v" + prefix + ":" + prefix + ":ro").c_str()));
}

TEST_F(Cli, PipesAndLinksInALogDirectoryStopNoCommand) {
  install_harmless_preload();
  fs::create_directory(root() / "mine");
  write_log(root() / "mine", 0);
  std::ofstream(root() / "victim") << "bytes=1\n";
  ASSERT_EQ(::mkfifo((root() / "mine/host.1.arena").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((root() / "mine/host.2.hugepages").c_str(), 0600), 0);
  fs::create_symlink(root() / "victim", root() / "mine/host.3.arena");
  const Outcome report = pinion({"report", "mine"});
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_EQ(report.out.find("with an arena"), std::string::npos) << report.out;
  EXPECT_EQ(pinion({"run", "--log", "mine", "--", "true"}).status, 0);
  for (const char* name : {"host.1.arena", "host.2.hugepages", "host.3.arena"})
    EXPECT_TRUE(fs::exists(fs::symlink_status(root() / "mine" / name))) << name;
  fs::create_symlink(root() / "victim", root() / "mine/other.plog");
  expect_usage_error({"run", "--log", "mine", "--", "true"}, "other.plog: not a log of Pinion");
  expect_usage_error({"report", "mine"}, "other.plog: a symbolic link");
  EXPECT_EQ(content_of(root() / "victim"), "bytes=1\n");
}

TEST_F(Cli, ErrorLinesShowNoControlCharacters) {
  const std::string name = "a\033[31m\nb.plog";
  std::ofstream(root() / name) << "Dear all";
  for (const char* command : {"report", "top", "simulate"})
    expect_usage_error({command, name}, "a?[31m?b.plog: not a Pinion log");
  install_harmless_preload();
  fs::create_directory(root() / "mine");
  fs::rename(root() / name, root() / "mine" / name);
  expect_usage_error({"run", "--log", "mine", "--", "true"}, "a?[31m?b.plog: not a log of Pinion");
  const Outcome o = pinion({"run", "--", "./\033[31m\nprogram"});
  EXPECT_EQ(o.err.find('\033'), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("./?[31m?program: not found"), std::string::npos) << o.err;
}

TEST_F(Cli, FromTheProgramsNameOnWordsAreItsOwn) {
  const auto words = [this](std::vector<std::string> before) {
    before.insert(before.end(), {"printf", "%s;", "-n", "2", "--limit=7", "[a,b]", "--", "", "-x"});
    return pinion(before).out;
  };
  const std::string all = "-n;2;--limit=7;[a,b];--;;-x;";
  EXPECT_EQ(words({"run", "--off", "--"}), all);
  EXPECT_EQ(words({"run", "--off"}), all);
  EXPECT_EQ(words({"run", "--off", "yes", "--limit", "1g"}), all) << "values of options are no program";
  EXPECT_EQ(words({"run", "--limit=1g", "--off"}), all);
}

TEST_F(Cli, RunOffLeavesTheProgramAlone) {
  const auto script = {"run", "--off", "yes", "--", "sh", "-c", "echo [$LD_PRELOAD]; exit 3"};
  Outcome o = pinion({script.begin(), script.end()});
  EXPECT_EQ(o.status, 3);
  EXPECT_EQ(o.out, "[]\n");
  EXPECT_EQ(o.err, "");
  ::setenv("PINION", "off", 1);
  o = pinion({"run", "--", "sh", "-c", "echo [$LD_PRELOAD]"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "[]\n");
}

TEST_F(Cli, RunForwardsSignals) {
  install_harmless_preload();
  const pid_t child =
      start({"run", "--", "sh", "-c", "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done"});
  EXPECT_TRUE(pinion::test::eventually([&] { return fs::exists(root() / "ready"); })) << "it has not begun";
  ::kill(child, SIGTERM);
  EXPECT_EQ(finish(child).status, 5);
}

TEST_F(Cli, RunForwardsNoSignalThatTheWholeGroupWasSent) {
  install_harmless_preload();
  ::setpgid(0, 0);
  ::signal(SIGUSR1, [](int) {});
  const pid_t child = start(
      {"run", "--", "sh", "-c", "trap 'echo got; : >got' USR1; touch ready; while ! [ -e end ]; do :; done"});
  EXPECT_TRUE(pinion::test::eventually([&] { return fs::exists(root() / "ready"); })) << "it has not begun";
  for (int i = 0; i < 3; ++i) {
    fs::remove(root() / "got");
    ::kill(0, SIGUSR1);
    EXPECT_TRUE(pinion::test::eventually([&] { return fs::exists(root() / "got"); }));
    ::usleep(50'000);  // a second one would come now
  }
  ::kill(child, SIGUSR1);  // for it alone
  ::usleep(50'000);
  std::ofstream(root() / "end");
  const Outcome o = finish(child);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "got\ngot\ngot\ngot\n");
}

TEST_F(Cli, InsideALauncherRunBecomesTheProgram) {
  install_harmless_preload();
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const pid_t child = start({"run", "--", "sh", "-c", "echo $$"});
  const Outcome o = finish(child);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, std::to_string(child) + "\n");
  EXPECT_EQ(o.err, "");
  expect_usage_error({"compare", "--", "true"}, "pinion compare -- mpirun");
}

TEST_F(Cli, RunSumsUpTheLogsOfAllRanks) {
  install_harmless_preload();
  fs::create_directories(root() / "made");
  write_log(root() / "made", 0);
  write_log(root() / "made", 1);
  fs::create_directories(root() / "logs");
  std::ofstream(root() / "logs/older.plog") << "PINIONLG of another run";
  const Outcome o = pinion({"run", "--log", "logs", "--", "sh", "-c", "cp made/*.plog logs/"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find("pinion: 2 ranks, 2.00 s, retention helper"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("4 transfers: 2 hits, 0 waits, 2 misses"), std::string::npos) << o.err;
  EXPECT_EQ(o.out, "");
}

}  // namespace
}  // namespace pinion::command_test
