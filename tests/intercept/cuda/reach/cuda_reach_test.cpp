// By every road to the driver's functions, a program gets the front's, and nothing where it has no libcuda.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

const std::string kTests = PINION_TEST_DIRECTORY;
const std::string kPreload = PINION_TEST_PRELOAD;
const std::string kCount = PINION_TEST_CALLS;

/// The output of the program; with its status where that is not 0.
std::string run(const std::string& environment, const std::string& program, const std::string& road) {
  const std::string command =
      "LD_LIBRARY_PATH=" + kTests + " " + environment + " " + kTests + "/" + program + " " + road + " 2>&1";
  std::string output;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
  const int status = ::pclose(pipe);
  return status == 0 ? output : output + "status " + std::to_string(status);
}

std::string preloaded(const std::string& options) { return "PINION=" + options + " LD_PRELOAD=" + kPreload; }
const std::string kAllOurs = "0 own, " + kCount + " elsewhere, 0 faults\n";
const std::string kAllOwn = kCount + " own, 0 elsewhere, 0 faults\n";

struct Road {
  const char* program;
  std::string road;
};
const std::array<Road, 8> kRoads{{{"reach_linked", "linked"},
                                  {"reach_linked", "default"},
                                  {"reach_linked", "dlsym"},
                                  {"reach_program", "default"},
                                  {"reach_program", "dlsym"},
                                  {"reach_program", "v1"},
                                  {"reach_program", "v2"},
                                  {"reach_program", "plugin " + kTests + "/libreach_plugin.so"}}};
TEST(CudaReach, EveryRoadEndsAtTheFront) {
  for (const auto& [program, road] : kRoads) {
    SCOPED_TRACE(std::string(program) + " " + road);
    EXPECT_EQ(run("PINION=", program, road), kAllOwn);
    EXPECT_EQ(run(preloaded("front=auto"), program, road), kAllOurs);
    EXPECT_EQ(run(preloaded("front=cuda"), program, road), kAllOurs);
    EXPECT_EQ(run(preloaded("front=auto") + " LD_BIND_NOW=1", program, road), kAllOurs);
  }
}

TEST(CudaReach, VersionsOfSymbolsLeadToTheFrontToo) {
  const std::string versioned = "LD_LIBRARY_PATH=" + kTests + "/versioned";
  for (const auto& [program, road] :
       {Road{"reach_program", "dlvsym"}, Road{"reach_program", "dlsym"}, Road{"reach_linked", "linked"}}) {
    SCOPED_TRACE(std::string(program) + " " + road);
    EXPECT_EQ(run(versioned + " PINION=", program, road), kAllOwn);
    EXPECT_EQ(run(versioned + " " + preloaded("front=auto"), program, road), kAllOurs);
    EXPECT_EQ(run(versioned + " " + preloaded("off"), program, road), kAllOwn);
  }
}

TEST(CudaReach, OfAFrontThatIsOffIsNone) {
  for (const auto& [program, road] : kRoads)
    for (const char* const options : {"off", "front=mpi", "front=verbs"}) {
      SCOPED_TRACE(std::string(program) + " " + road + " " + options);
      EXPECT_EQ(run(preloaded(options), program, road), kAllOwn);
    }
}

TEST(CudaReach, ProgramsWithoutLibcudaSeeNone) {
  for (const char* const options : {"front=auto", "off"}) {
    EXPECT_EQ(run(preloaded(options), "reach_program", "nothing"), "0 faults\n");
    EXPECT_EQ(run(preloaded(options) + " LD_BIND_NOW=1", "reach_program", "nothing"), "0 faults\n");
  }
}

TEST(CudaReach, OfAnUnknownCopyIsAnnounced) {
  for (const char* const road : {"unknown", "unknown by scope"})
    EXPECT_EQ(run(preloaded("front=auto"), "reach_program", "'" + std::string(road) + "'"),
              "0 own, 0 elsewhere, 0 faults\n");
}

/// Loaders of libcuda that keep its functions in variables of their names find these variables.
TEST(CudaReach, VariablesOfTheNamesStayTheirLibrarys) {
  const std::string library = kTests + "/libvariables.so", driver = kTests + "/libcuda.so.1";
  const std::string plugin = kTests + "/libreach_plugin.so";
  for (const char* const binding : {"", " LD_BIND_NOW=1"})
    for (const std::string& environment :
         {std::string("PINION="), preloaded("front=auto"), preloaded("off")}) {
      SCOPED_TRACE(environment + binding);
      EXPECT_EQ(run(environment + binding, "variables_linked", ""), "5000, own\n");
      EXPECT_EQ(run(environment + binding, "variables_program", library), "5000, own\n");
      EXPECT_EQ(run(environment + binding, "variables_program", library + " " + driver), "5000, own\n");
      EXPECT_EQ(run(environment + binding, "variables_program", library + " " + plugin), "5000, own\n");
    }
}

/// NVIDIA's runtime library takes some hundred functions from the driver when it is first used.
TEST(CudaReach, TheRuntimeLibraryGetsTheFrontsFunctions) {
  int programs = 0;
  for (const auto& [program, file] :
       {Road{"reach_runtime_static", ""}, Road{"reach_runtime_shared", "libcudart.so"}}) {
    if (::access((kTests + "/" + program).c_str(), X_OK) != 0) continue;
    SCOPED_TRACE(program);
    ++programs;
    EXPECT_EQ(run("PINION=", program, file), "100: many own, none elsewhere\n");
    EXPECT_EQ(run(preloaded("front=auto"), program, file), "100: none own, many elsewhere\n");
    EXPECT_EQ(run(preloaded("front=verbs"), program, file).substr(0, 13), "100: many own");
  }
  if (programs == 0) GTEST_SKIP() << "CUDA's runtime library was missing when this was built";
}

/// A library that stands before libcuda too keeps its calls.
TEST(CudaReach, AnotherLayerBehindIsKept) {
  const std::string layer = kTests + "/libreach_layer.so";
  const std::string both = "PINION=front=auto LD_PRELOAD=" + kPreload + ":" + layer;
  EXPECT_EQ(run(both, "reach_program", "dlsym"), kAllOurs + "layer: 2 calls\n");
  EXPECT_EQ(run(both, "reach_program", "v2"), kAllOurs + "layer: 1 calls\n");
  EXPECT_EQ(run(both, "reach_linked", "linked"), kAllOurs + "layer: 4 calls\n");
}

/// One that comes first finds libcuda's functions past the front, which stands aside then.
TEST(CudaReach, AnotherLayerBeforeLeavesNothingToTheFront) {
  const std::string layer = kTests + "/libreach_layer.so";
  const std::string both = "PINION=front=auto LD_PRELOAD=" + layer + ":" + kPreload;
  for (const auto& [program, road] : kRoads) {
    SCOPED_TRACE(std::string(program) + " " + road);
    const std::string output = run(both, program, road), plain = run("LD_PRELOAD=" + layer, program, road);
    ASSERT_GE(output.size(), plain.size());
    EXPECT_EQ(output.substr(output.size() - plain.size()), plain);
  }
  const std::string output = run(both, "reach_linked", "linked");
  EXPECT_EQ(output.substr(0, output.find(':', 8)),
            "pinion: another preload comes before Pinion's and serves the CUDA driver's calls");
}

}  // namespace
