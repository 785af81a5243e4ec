// Files that a command writes for other programs to read.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace pinion::cli {

/// Readers see the former file or the whole new one: it is written beside its place, then renamed, unless
/// `write` throws. A pipe or a device is written to directly. Throws UsageError where the path is no good, or
/// a link of another user's; else Failure.
void write_file(const std::string& path, const std::function<void(std::FILE*)>& write);
void write_text(const std::string& path, const std::string& text);

}  // namespace pinion::cli
