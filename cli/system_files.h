// Small reads of /proc and /sys, where a missing file reads as empty; and the places of an installation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pinion::cli {

/// The whole file, without the newline at its end.
std::string read_text(const std::string& path);

/// The value after `key` and a colon in a file of "key : value" lines such as /proc/meminfo or /proc/cpuinfo.
std::string field_of(const std::string& path, const std::string& key);

/// The word in brackets: "always [madvise] never" -> "madvise".
std::string chosen_word(const std::string& text);

/// Names in a directory, sorted.
std::vector<std::string> names_in(const std::string& directory);

/// The installation or build tree of this executable: `pinion` in bin/, or its bench in libexec/pinion/.
std::filesystem::path installation();
/// `pinion` itself.
std::string pinion_command();

}  // namespace pinion::cli
