#include "lease/known_mappings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/range.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

using Sizes = std::vector<KnownMappings::Size>;

class KnownMappingsTest : public ::testing::Test {
 protected:
  KnownMappings known(const char* command = "program") const {
    return KnownMappings(command, directory_.path());
  }
  std::string path() const { return directory_.path() + "/pinion-mappings-" + std::to_string(::geteuid()); }

  const TemporaryDirectory directory_;
};

TEST_F(KnownMappingsTest, LastBeyondTheRun) {
  EXPECT_EQ(known().sizes(), Sizes{});
  known().keep({64 << 20, 2});
  known().keep({64 << 20, 3});
  known().keep({(64 << 20) + page_size(), 100});
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 3}, {(64 << 20) + page_size(), KnownMappings::kMostAtOnce}}));
}

TEST_F(KnownMappingsTest, WhatTheDeviceGainsByBelongsToASize) {
  known().keep({64 << 20, 2, true});
  known().keep({32 << 20, 2, false});
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 2, true}, {32 << 20, 2, false}}));
  known().keep({64 << 20, 2, false});
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 2, false}, {32 << 20, 2, false}}));
}

TEST_F(KnownMappingsTest, WhatSomeWereNotRegisteredOfStaysSo) {
  known().keep({64 << 20, 2});
  known().keep({64 << 20, 0});
  known().keep({64 << 20, 2});
  known().forget(64 << 20);
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 0}}));
}

TEST_F(KnownMappingsTest, OneIsForgotten) {
  known("other").keep({64 << 20, 1});
  known().keep({64 << 20, 1});
  known().keep({32 << 20, 1});
  known().forget(64 << 20);
  known().forget(128 << 20);
  EXPECT_EQ(known().sizes(), (Sizes{{32 << 20, 1}}));
  EXPECT_EQ(known("other").sizes(), (Sizes{{64 << 20, 1}}));
}

TEST_F(KnownMappingsTest, EachProgramHasItsOwn) {
  known("python one.py").keep({64 << 20, 1});
  known("python two.py").keep({32 << 20, 1});
  EXPECT_EQ(known("python one.py --fast").sizes(), (Sizes{{64 << 20, 1}}));
  EXPECT_EQ(known("python two.py").sizes(), (Sizes{{32 << 20, 1}}));
  EXPECT_EQ(known("python").sizes(), Sizes{});
}

TEST_F(KnownMappingsTest, AFullFileForgetsOthers) {
  const KnownMappings many = known("many");
  for (std::size_t i = 1; i <= KnownMappings::kMost; ++i) many.keep({i * page_size(), 1});
  EXPECT_EQ(many.sizes().size(), KnownMappings::kMost);
  known().keep({64 << 20, 1});
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 1}}));
  EXPECT_EQ(many.sizes().size(), KnownMappings::kMost - 1);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(KnownMappings::kMost * sizeof(std::uint64_t)));
}

TEST_F(KnownMappingsTest, AFileThatOthersMayWriteIsNotBelieved) {
  known().keep({64 << 20, 1});
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_EQ(known().sizes(), Sizes{});
}

TEST_F(KnownMappingsTest, NonsenseIsNoSize) {
  { std::ofstream(path()) << std::string(100'001, 'x'); }
  ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  EXPECT_EQ(known().sizes(), Sizes{});
  known().keep({64 << 20, 1});
  EXPECT_EQ(known().sizes(), (Sizes{{64 << 20, 1}}));
}

}  // namespace
}  // namespace pinion
