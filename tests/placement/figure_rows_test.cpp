#include "placement/figure_rows.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "placement/arena_figures.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

class FigureFiles : public ::testing::Test {
 protected:
  std::string own() const {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    return at(std::string(host) + "." + std::to_string(::getpid()) + ".arena");
  }
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(std::uint64_t bytes) const {
    ArenaFigures figures;
    figures.processes = 1;
    figures.bytes = bytes;
    write_arena_figures(directory_.path().c_str(), figures);
  }

  TemporaryDirectory directory_;
};

TEST_F(FigureFiles, AProcessReplacesItsOwnAlone) {
  write(5);
  write(7);
  EXPECT_EQ(read_arena_figures(directory_.path()).bytes, 7u);
  std::ofstream(own()) << "Dear all\n";
  write(9);
  EXPECT_EQ(content(own()), "Dear all\n");
}

TEST_F(FigureFiles, AreNotWrittenThroughLinks) {
  std::ofstream(at("mine")) << "Dear all\n";
  for (const char* target : {"mine", "nothing"}) {
    fs::create_symlink(at(target), own());
    write(5);
    EXPECT_EQ(read_arena_figures(directory_.path()).processes, 0u);
    fs::remove(own());
  }
  EXPECT_EQ(content(at("mine")), "Dear all\n");
  EXPECT_FALSE(fs::exists(at("nothing")));
}

TEST_F(FigureFiles, APipeInTheirPlaceStopsNobody) {
  ASSERT_EQ(::mkfifo(own().c_str(), 0600), 0);
  write(5);
  EXPECT_EQ(read_arena_figures(directory_.path()).processes, 0u);
}

TEST_F(FigureFiles, CountByTheirContents) {
  for (const char* text : {"", "bytes=1", "bytes=1\nDear all\n", "bytes=one\n", "unknown=1\n", "bytes=-1\n",
                           "bytes=99999999999999999999\n", "bytes=1\n\n"}) {
    std::ofstream(at("host.3.arena")) << text;
    EXPECT_FALSE(is_arena_figures(at("host.3.arena"))) << text;
  }
  std::ofstream(at("host.3.arena")) << "bytes=1\nserved=2\n";
  EXPECT_TRUE(is_arena_figures(at("host.3.arena")));
  fs::copy_file(at("host.3.arena"), at("host.arena"));
  EXPECT_FALSE(is_arena_figures(at("host.arena"))) << "no process is named";
  EXPECT_EQ(read_arena_figures(directory_.path()).served, 2u);
}

}  // namespace
}  // namespace pinion
