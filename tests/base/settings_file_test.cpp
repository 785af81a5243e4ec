#include "base/settings_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_directory.h"

namespace pinion {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

class SettingsFile : public testing::Test {
 protected:
  Error read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    settings_.clear();
    return read_settings(path_, take_);
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/settings";
  Settings settings_;
  const TakeSetting take_ = [this](std::string_view name, std::string_view value) -> Error {
    if (name == "wrong") return Error::make(ERANGE, "wrong indeed");
    settings_.emplace_back(name, value);
    return {};
  };
};

TEST_F(SettingsFile, OneNameAndValueALine) {
  const Error error = read("a=1\n  b = two words \nc=\nd=x=y\n\tlast=no newline");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(settings_,
            (Settings{{"a", "1"}, {"b", "two words"}, {"c", ""}, {"d", "x=y"}, {"last", "no newline"}}));
}

TEST_F(SettingsFile, CommentsAndEmptyLinesAreLeftOut) {
  const Error error = read("# first\n\n   # indented\na=1 # after\nb=/run#3 \t#x\r\n#\n");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(settings_, (Settings{{"a", "1"}, {"b", "/run#3"}}));
}

TEST_F(SettingsFile, AnEmptyFileSetsNothing) {
  EXPECT_FALSE(read(""));
  EXPECT_TRUE(settings_.empty());
}

TEST_F(SettingsFile, ErrorsNameFileAndLine) {
  const std::pair<std::string, std::string> wrong[] = {
      {"a=1\nword\n", ":2: 'word' is not of the form name=value"},
      {"=1", ":1: '=1' is not of the form name=value"},
      {"\n\na=\"1\"", ":3: \"1\": a value is written without quotation marks"},
      {"a=1\n\nwrong=2\nb=3", ":3: wrong indeed"},
      {std::string("a=\0\n", 4), ":1: not a line of text; valid is name=value"},
      {"a=\x1b[2J", ":1: not a line of text; valid is name=value"},
  };
  for (const auto& [text, message] : wrong) EXPECT_EQ(read(text).message, path_ + message);
}

TEST_F(SettingsFile, NothingAfterAnErrorIsTaken) {
  EXPECT_EQ(read("a=1\nwrong=\nb=2\n").code, ERANGE);
  EXPECT_EQ(settings_, (Settings{{"a", "1"}}));
}

TEST_F(SettingsFile, WhatIsNoFileOfSettings) {
  EXPECT_EQ(read_settings("/nonexistent/settings", take_).code, ENOENT);
  const std::string fifo = directory_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {directory_.path(), fifo, std::string("/dev/zero")})
    EXPECT_EQ(read_settings(path, take_).message, path + ": not a regular file");
  EXPECT_EQ(read(std::string((1 << 20) + 1, '\n')).code, EFBIG);
}

TEST_F(SettingsFile, ALinkIsFollowed) {
  const std::string link = directory_.path() + "/link";
  ASSERT_FALSE(read("a=1"));
  ASSERT_EQ(::symlink(path_.c_str(), link.c_str()), 0);
  settings_.clear();
  EXPECT_FALSE(read_settings(link, take_));
  EXPECT_EQ(settings_, (Settings{{"a", "1"}}));
}

}  // namespace
}  // namespace pinion
