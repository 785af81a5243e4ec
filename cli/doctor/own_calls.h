// Code that bypasses libc for its system calls, under which `--monitor auto` takes userfaultfd: for `pinion
// doctor`.
#pragma once

#include <string>
#include <vector>

namespace pinion::cli {

/// A line for each object with such calls: of this process (which has the user's preloads), or of the file
/// and the libraries that it loads at its start. Throws UsageError for a file of another kind than this
/// machine's programs and libraries.
std::vector<std::string> own_calls_here();
std::vector<std::string> own_calls_of(const std::string& file);

}  // namespace pinion::cli
