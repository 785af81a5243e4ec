#include "device/model/cost_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "support/temporary_directory.h"

namespace pinion {
namespace {

class CostModelFile : public testing::Test {
 protected:
  CostModelResult load(const std::string& text) {
    std::ofstream(path_) << text;
    return load_cost_model(path_);
  }

  const TemporaryDirectory directory_;  // of its own: tests run side by side
  const std::string path_ = directory_.path() + "/my.nic";
};

TEST(CostModel, ConnectxIsTheModelOfUcx) {
  const auto [error, nic] = load_cost_model("connectx");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(nic.name, "connectx");
  EXPECT_EQ(nic.register_cost(1), 16246);
  EXPECT_EQ(nic.register_cost(256), 16000 + 256 * 246);
  EXPECT_NEAR(static_cast<double>(nic.deregister_cost(256)),
              0.27 * static_cast<double>(nic.register_cost(256)), 1);
}

TEST(CostModel, MyrinetIsAsTheFirehosePaperMeasured) {
  const auto [error, nic] = load_cost_model("myrinet");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(nic.register_cost(1), 40 * kMicrosecond);
  EXPECT_EQ(nic.deregister_cost(1), 6 * kMillisecond);
  EXPECT_GT(nic.register_cost(2), nic.register_cost(1));
}

TEST(CostModel, EveryPresetLoads) {
  std::size_t count = 0;
  const CostModelPreset* presets = cost_model_presets(&count);
  std::set<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [error, nic] = load_cost_model(presets[i].name);
    EXPECT_FALSE(error) << error.message;
    EXPECT_EQ(nic.name, presets[i].name);
    EXPECT_GT(std::string(presets[i].text).size(), 0u);
    names.insert(presets[i].name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"connectx", "myrinet", "none"}));
  EXPECT_EQ(load_cost_model("none").model.register_cost(1000), 0);
}

TEST(CostModel, UnknownNameListsTheValidOnes) {
  const Error error = load_cost_model("infinihost").error;
  EXPECT_EQ(error.code, EINVAL);
  for (const char* part : {"infinihost", "connectx", "myrinet", "none", "file"}) {
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
  }
}

TEST_F(CostModelFile, SetsEveryKey) {
  const auto [error, nic] = load(
      "# of our own\nregister_ns_per_page=100\nregister_ns_base = 2500.5 # "
      "measured\nderegister_ns_per_page=10\n"
      "deregister_ns_base=1e3\nmax_regions=8\nmax_region_bytes=1G\nmax_bytes=4294967296\n");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(nic.name, path_);
  EXPECT_EQ(nic.register_cost(10), 3500);
  EXPECT_EQ(nic.deregister_cost(10), 1100);
  EXPECT_EQ(nic.caps.max_regions, 8u);
  EXPECT_EQ(nic.caps.max_region_bytes, std::size_t{1} << 30);
  EXPECT_EQ(nic.caps.max_bytes, std::size_t{4} << 30);
}

TEST_F(CostModelFile, WhatIsLeftOutIsNothing) {
  const auto [error, nic] = load("register_ns_base = 5\n");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(nic.register_cost(100), 5);
  EXPECT_EQ(nic.deregister_cost(100), 0);
  EXPECT_EQ(nic.caps.max_regions, 0u);
}

TEST_F(CostModelFile, WrongKeysAndValuesAreErrorsThatNameThem) {
  const std::pair<const char*, const char*> wrong[] = {
      {"register_ns=1", ":1: unknown key 'register_ns'; valid keys: register_ns_per_page, "},
      {"\nregister_ns_base=-1", ":2: register_ns_base: '-1' is not valid; expected a number of nanoseconds"},
      {"register_ns_base=nan", ":1: register_ns_base"},
      {"register_ns_per_page=inf", ":1: register_ns_per_page"},
      {"deregister_ns_base=1us", ":1: deregister_ns_base"},
      {"deregister_ns_per_page=true", ":1: deregister_ns_per_page"},
      {"max_regions=-1", ":1: max_regions: '-1' is not valid; expected a whole number"},
      {"max_regions=1.5", ":1: max_regions"},
      {"max_regions=2K", ":1: max_regions"},
      {"max_bytes=many", ":1: max_bytes: 'many' is not valid; expected a size"},
      {"max_bytes=\"2G\"", ":1: \"2G\": a value is written without quotation marks"},
      {"[nic]\nmax_regions=1", ":1: '[nic]' is not of the form name=value"},
      {"max_regions=", ":1: max_regions: ''"},
  };
  for (const auto& [text, part] : wrong) {
    const Error error = load(text).error;
    EXPECT_EQ(error.code, EINVAL) << text;
    EXPECT_EQ(std::string(error.message).rfind(path_ + part, 0), 0u) << text << ": " << error.message;
  }
}

TEST(CostModel, FileThatIsNotThere) {
  EXPECT_TRUE(load_cost_model("/nonexistent/nic.conf").error);
  EXPECT_TRUE(load_cost_model("nonexistent.nic").error);
}

}  // namespace
}  // namespace pinion
