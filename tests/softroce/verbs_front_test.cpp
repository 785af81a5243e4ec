// The verbs front on a real kernel RDMA stack: a program that registers for each transfer, with the preload
// and without. Runs in the virtual machine (tests/e2e/softroce.sh).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <string>

namespace {

struct Ended {
  int status = -1;
  std::string output;  ///< standard output and error
};

/// The program's scenario under these options; `off`: without Pinion. `preloads`: with Pinion's at the %.
Ended run(const std::string& scenario, const std::string& options, const std::string& environment = "",
          const std::string& program = "verbs_front_program", std::string preloads = "%") {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto preload = here.parent_path().parent_path() / "lib" / "libpinion-preload.so";
  preloads.replace(preloads.find('%'), 1, preload.string());
  const std::string pinion =
      options == "off" ? "" : "PINION=front=verbs," + options + " LD_PRELOAD=" + preloads + " ";
  const std::string command =
      "env " + environment + " " + pinion + (here / program).string() + " " + scenario + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  Ended ended;
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe)) ended.output += part.data();
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

/// The scenario succeeds, with just this output before its last line.
void expect(const std::string& scenario, const std::string& options, const std::string& says,
            const std::string& environment = "") {
  const Ended ended = run(scenario, options, environment);
  EXPECT_EQ(ended.status, 0) << scenario << " under " << options;
  EXPECT_EQ(ended.output, says + "done\n") << scenario << " under " << options;
}

TEST(VerbsFront, KeepsWhatTheRetentionSays) {
  expect("loop", "off", "40 keys, 0 bytes kept\n");
  expect("loop", "retention=leave-pinned,remote-keys=shared", "2 keys, 2097152 bytes kept\n");
  expect("loop", "retention=on-demand,remote-keys=shared", "40 keys, 0 bytes kept\n");
  expect("loop", "retention=observe,remote-keys=shared", "40 keys, 0 bytes kept\n");
  EXPECT_EQ(run("loop", "retention=helper,minimum-gain=0,remote-keys=shared").status, 0);
}

TEST(VerbsFront, StrictKeysOfPeersAreNotKept) {
  expect("loop", "retention=leave-pinned,remote-keys=strict", "40 keys, 0 bytes kept\n");
  expect("loop", "retention=leave-pinned", "40 keys, 0 bytes kept\n");
  expect("after", "retention=leave-pinned,remote-keys=strict", "refused\n");
  expect("after", "retention=leave-pinned,remote-keys=shared", "allowed\n");
}

TEST(VerbsFront, OfItselfKeepsKeysForLibrariesThatDo) {
  expect("after", "retention=leave-pinned", "refused\n");
  expect("after-by-cache", "retention=leave-pinned", "allowed\n");
}

// Posted receives and sends hold keys, as peers do.
TEST(VerbsFront, WhatIsDeregisteredIsDeadToTheDevice) {
  const auto output = [](const std::string& options, const std::string& mode) {
    return run(mode, options, "", "verbs_keys_program").output;
  };
  const std::string plain = output("off", "few");
  EXPECT_NE(plain.find("write, deregister (done), posted receive: fails\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("write, change rights (refused), posted receive: works, memory changed\n"),
            std::string::npos)
      << plain;
  EXPECT_TRUE(plain.ends_with("done\n"));
  EXPECT_EQ(output("retention=helper", "few"), plain);
  EXPECT_EQ(output("retention=leave-pinned", "beside"), plain);
  EXPECT_EQ(output("retention=leave-pinned,remote-keys=strict", "beside"), plain);
}

TEST(VerbsFront, NoKeyOutlivesItsMemory) {
  expect("stale-cache", "off", "is lost\n");
  expect("stale", "off", "arrives\n");
  for (const char* const retention : {"leave-pinned", "lru", "helper"})
    expect("stale", std::string("remote-keys=shared,retention=") + retention, "arrives\n");
}

TEST(VerbsFront, IsWhatTheProgramAskedFor) {
  for (const char* const options : {"retention=leave-pinned,remote-keys=shared",
                                    "retention=leave-pinned,remote-keys=strict", "retention=observe"})
    for (const char* const scenario : {"rights", "passing"}) expect(scenario, options, "");
}

TEST(VerbsFront, MeetsFunctionsThatAreLookedUp) {
  EXPECT_EQ(run("mixtures", "off").status, 0);
  expect("mixtures", "retention=leave-pinned,remote-keys=shared", "1 keys\n");
  EXPECT_EQ(run("mixtures", "retention=observe").status, 0);
  EXPECT_EQ(
      run("local mixtures", "retention=leave-pinned,remote-keys=shared", "", "verbs_plugin_host").output,
      "1 keys\ndone\n1 keys\ndone\nthere\n");
}

// A preloaded tool, before and behind Pinion.
TEST(VerbsFront, OthersStandBeforeTheSameFunctions) {
  const auto wrapper =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/libverbs_wrapper.so";
  for (const char* const finds : {"WRAPPER=next", "WRAPPER=library"})
    for (const std::string& preloads : {wrapper + ":%", "%:" + wrapper}) {
      const Ended ended =
          run("loop", "retention=leave-pinned,remote-keys=shared", finds, "verbs_front_program", preloads);
      EXPECT_EQ(ended.output, "2 keys, 2097152 bytes kept\ndone\n") << finds << ' ' << preloads;
    }
}

// This device lacks re-registration of its own.
TEST(VerbsFront, ReregistersUnderTheSameHandle) {
  expect("reregistration", "remote-keys=shared", "");
  expect("reregistration", "retention=observe", "");
}

TEST(VerbsFront, RefusesReregistrationsAsTheLibraryDoes) {
  expect("wrong-reregistration", "off", "");
  expect("wrong-reregistration", "remote-keys=shared", "");
  expect("wrong-reregistration", "remote-keys=shared,retention=observe", "");
}

// Fork-safe libibverbs gives the kernel advice on the registered pages, which it refuses for parts of hugetlb
// pages. The whole page would be missing in children.
TEST(VerbsFront, RegistersWholeHugepagesWhereNoChildMissesThem) {
  const std::string kept = "retention=leave-pinned,remote-keys=shared";
  expect("hugepage-parts", "off", "3 registered, 3 keys\n");
  expect("hugepage-parts", kept, "3 registered, 1 keys\n");
  EXPECT_NE(run("hugepage-parts", "off", "RDMAV_FORK_SAFE=1").output, "3 registered, 3 keys\ndone\n");
  // What Pinion was refused is asked again by the call itself: the library grants then what it refused
  // before. No region serves two requests.
  expect("hugepage-parts", kept, "3 registered, 3 keys\n", "RDMAV_FORK_SAFE=1");
}

TEST(VerbsFront, ProtectionDomainsComeAndGo) {
  const Ended ended = run("domains", "retention=leave-pinned,remote-keys=shared");
  EXPECT_EQ(ended.status, 0);
  // The line names the library's file, and is broken by its length.
  const std::string said = std::regex_replace(ended.output, std::regex("\npinion:  "), "");
  EXPECT_TRUE(std::regex_match(
      said, std::regex(
                "pinion: a protection domain of /\\S*/libibverbs\\.so\\S* is left to the program: 16 of them "
                "are in use, counted with their kinds of remote rights \\(said once\\)\n"
                "2 keys, 2097152 bytes kept\ndone\n")))
      << ended.output;
}

TEST(VerbsFront, DevicesAreClosedUnderRegistrations) {
  expect("closing", "off", "40 keys, 0 bytes kept\n");
  expect("closing", "retention=leave-pinned,remote-keys=shared", "2 keys, 2097152 bytes kept\n");
  expect("closing", "retention=observe,remote-keys=shared", "40 keys, 0 bytes kept\n");
}

// libibverbs withholds registered memory from children then.
TEST(VerbsFront, ChildrenHaveWhatIsDeregistered) {
  expect("fork-safe", "off", "0 bytes kept\n0 bytes kept\n0 bytes kept\n");
  expect("fork-safe", "retention=leave-pinned,remote-keys=shared",
         "4096 bytes kept\n1048576 bytes kept\n4194304 bytes kept\n");
  EXPECT_EQ(run("fork-safe", "retention=helper,minimum-gain=0,remote-keys=shared").status, 0);
}

TEST(VerbsFront, ChildrenHaveWhatTheProgramHasNotRegistered) {
  expect("fork-safe-overlap", "off", "");
  for (const char* const options :
       {"retention=leave-pinned,remote-keys=shared", "retention=leave-pinned,remote-keys=strict",
        "retention=helper,minimum-gain=0,remote-keys=shared"})
    expect("fork-safe-overlap", options, "");
}

TEST(VerbsFront, ForksThreadsAndEnds) {
  expect("fork", "retention=leave-pinned,remote-keys=shared", "");
  expect("threads", "retention=leave-pinned,remote-keys=shared", "0 others\n");
  for (const char* const retention : {"leave-pinned", "on-demand", "helper"})
    expect("leaving", std::string("remote-keys=shared,retention=") + retention, "");
}

TEST(VerbsFront, IsThereBeforeMain) {
  expect("none", "retention=leave-pinned,remote-keys=shared", "2 keys, 2097152 bytes kept\n",
         "BEFORE_MAIN=1");
}

TEST(VerbsFront, TheProgramGetsWhatExceedsLimits) {
  const Ended ended = run("limit", "retention=leave-pinned,remote-keys=shared,limit=1M");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output,
            "pinion: 1M (--limit) hold no further registration of the program's: what exceeds them is "
            "registered\npinion:   as without Pinion (said once)\ndone\n");
  // This limit is not Pinion's.
  expect("memlock", "retention=leave-pinned,remote-keys=shared",
         "pinion: RLIMIT_MEMLOCK (1536K) has no room for 2M more: 0 are registered, and none of it is "
         "idle.\npinion:   Raise it to `ulimit -l 2048` at least (said once)\n");
}

TEST(VerbsFront, WhatIsKeptMakesWayWhereTheDeviceIsFull) {
  expect("device-full", "off", "20 at a time\n");
  for (const char* const keys : {"shared", "strict"})
    expect("device-full", std::string("retention=leave-pinned,remote-keys=") + keys, "20 at a time\n");
}

// A plugin that brings libibverbs with it. Providers hold that library from then on.
TEST(VerbsFront, PluginsComeAndGo) {
  for (const char* const scope : {"local", "global"}) {
    const std::string twice = "40 keys, 0 bytes kept\ndone\n40 keys, 0 bytes kept\ndone\n";
    EXPECT_EQ(run(scope, "off", "", "verbs_plugin_host").output, twice + "there\n");
    const Ended ended = run(scope, "retention=leave-pinned,remote-keys=shared", "", "verbs_plugin_host");
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.output, "2 keys, 2097152 bytes kept\ndone\n2 keys, 2097152 bytes kept\ndone\nthere\n");
  }
}

/// Few segments of the arena, in the domain of local keys and in that of peers: each is registered as far as
/// it is used, and later blocks lie in the next one.
TEST(VerbsFront, TheArenaServesPeersWhereTheUserAllowsIt) {
  const auto lib =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() / "lib";
  const std::string heap = (lib / "libpinion-heap.so").string() + ":%";
  const auto output = [&](const std::string& options) {
    return run("blocks", "retention=on-demand,remote-keys=shared,preregister=64M" + options, "",
               "verbs_front_program", heap)
        .output;
  };
  EXPECT_EQ(output(""), "2 local, 8 remote\ndone\n");
  EXPECT_EQ(output(",preregister-remote=yes"), "2 local, 3 remote\ndone\n");
  EXPECT_EQ(run("blocks", "retention=on-demand,remote-keys=strict,preregister=64M,preregister-remote=yes", "",
                "verbs_front_program", heap)
                .output,
            "8 local, 8 remote\ndone\n");
}

TEST(VerbsFront, IsNotThereUnlessAskedFor) {
  for (const char* const options : {"front=mpi,retention=leave-pinned", "off"})
    EXPECT_EQ(run("loop", options).output, "40 keys, 0 bytes kept\ndone\n") << options;
}

}  // namespace
