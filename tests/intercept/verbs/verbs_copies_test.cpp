// Two copies of libibverbs in a process, as a wheel's and the system's: each call reaches the copy that its
// caller is bound to, in every order of loading. And libraries that wrap the same functions before Pinion.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/shell.h"

namespace {

using pinion::test::Ended;
using pinion::test::shell;

const std::string kTests = PINION_TEST_DIRECTORY;
const std::string kPreload = PINION_TEST_PRELOAD;

/// The program's output. `before`: settings of its environment.
std::string run(const std::string& before, const std::vector<std::string>& plugins,
                const std::string& program = "verbs_copies_program") {
  std::string command = before + " " + kTests + "/" + program;
  for (const std::string& plugin : plugins) command += " " + kTests + "/" + plugin;
  const Ended ended = shell("env LD_LIBRARY_PATH=" + kTests + " " + command);
  EXPECT_EQ(ended.status, 0) << command;
  return ended.output;
}
std::string preloaded(const std::string& options) { return "PINION=" + options + " LD_PRELOAD=" + kPreload; }

/// A copy is told by its provider's functions in the context, or by its caller alone.
constexpr const char* kContexts[] = {"", "MADE_UP_OPERATIONS=1 "};
const std::vector<std::vector<std::string>> kOrders = {
    {"plugin_one.so", "plugin_other.so"},
    {"plugin_other.so", "plugin_one.so"},
    {"plugin_other.so"},
    {"plugin_one.so", "plugin_other.so", "libuct_other.so"}};

TEST(VerbsCopies, EachCallReachesItsCallersOwn) {
  for (const char* const program : {"verbs_copies_program", "verbs_copies_linked_program"})
    for (const auto& order : kOrders) {
      const std::string plain = run("", order, program);
      EXPECT_NE(plain.find("right, 32 reached\n"), std::string::npos) << plain;
      for (const std::string context : kContexts)
        for (const char* const options : {"off", "front=mpi", "front=cuda", "front=verbs,remote-keys=strict"})
          EXPECT_EQ(run(context + preloaded(options), order, program), plain) << context << options;
    }
}

// One of four registrations that reach a copy is the page by which the device learns what children lack.
TEST(VerbsCopies, EachIsLed) {
  const std::string led = preloaded("front=verbs,retention=leave-pinned");
  for (const std::string context : kContexts) {
    EXPECT_EQ(run(context + led, {"libuct_one.so", "libuct_other.so"}),
              "right, 4 reached\nright, 4 reached\nright, 8 reached\nright, 8 reached\n");
    EXPECT_EQ(run(context + led, {"libuct_other.so", "libuct_one.so"}),
              "right, 4 reached\nright, 4 reached\nright, 8 reached\nright, 8 reached\n");
    EXPECT_EQ(run(context + led, {"plugin_one.so", "libuct_other.so"}),
              "right, 32 reached\nright, 4 reached\nright, 64 reached\nright, 8 reached\n")
        << "a plain caller beside a cache";
  }
}

// Its search among all libraries once took the wrapper itself for the next, which calls Pinion again.
TEST(VerbsCopies, AWrapperBeforePinionIsNotTheNextOne) {
  const std::string wrapper = kTests + "/libverbs_copies_wrapper.so";
  for (const char* const plugin : {"plugin_one.so", "libuct_one.so"}) {
    const std::string plain = run("WRAPPER=library LD_PRELOAD=" + wrapper, {plugin});
    EXPECT_NE(plain.find("right, 32 reached\n"), std::string::npos) << plain;
    for (const char* const options : {"off", "front=mpi", "front=verbs,remote-keys=strict"})
      EXPECT_EQ(
          run("WRAPPER=library PINION=" + std::string(options) + " LD_PRELOAD=" + wrapper + ":" + kPreload,
              {plugin}),
          plain)
          << options;
  }
}

}  // namespace
