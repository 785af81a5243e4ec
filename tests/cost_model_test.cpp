#include "device/cost_model.h"

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
  const std::string path_ = directory_.path() + "/nic.toml";
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
  for (const char* part : {"infinihost", "connectx", "myrinet", "none", "TOML"}) {
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
  }
}

TEST_F(CostModelFile, SetsEveryKey) {
  const auto [error, nic] = load(
      "register_ns_per_page = 100\nregister_ns_base = 2500.5\nderegister_ns_per_page = 10\n"
      "deregister_ns_base = 1000\nmax_regions = 8\nmax_region_bytes = \"1G\"\nmax_bytes = 4294967296\n");
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
      {"register_ns = 1", "'register_ns'"},
      {"register_ns_base = -1", "'register_ns_base'"},
      {"register_ns_base = nan", "'register_ns_base'"},
      {"register_ns_per_page = inf", "'register_ns_per_page'"},
      {"deregister_ns_base = \"1\"", "'deregister_ns_base'"},
      {"deregister_ns_per_page = true", "'deregister_ns_per_page'"},
      {"max_regions = -1", "'max_regions'"},
      {"max_bytes = 1.5", "'max_bytes'"},
      {"max_region_bytes = \"many\"", "'max_region_bytes'"},
      {"[nic]\nmax_regions = 1", "'nic'"},
      {"max_regions = ", "line 1"},
  };
  for (const auto& [text, part] : wrong) {
    const Error error = load(text).error;
    EXPECT_EQ(error.code, EINVAL) << text;
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << text << ": " << error.message;
    EXPECT_NE(std::string(error.message).find(path_), std::string::npos) << error.message;
  }
  EXPECT_NE(std::string(load("speed = 1").error.message).find("register_ns_per_page"), std::string::npos);
}

TEST(CostModel, FileThatIsNotThere) {
  EXPECT_TRUE(load_cost_model("/nonexistent/nic.toml").error);
  EXPECT_TRUE(load_cost_model("nonexistent.toml").error);
}

}  // namespace
}  // namespace pinion
