// Mappings of a file that several processes write to, and whether the file's system is fit for them.
// Stateless; any thread, never from hooks.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace pinion::runlog {

/// Maps part of a file, shared and writable, at `address`, or where the kernel chooses when that is null. It
/// makes no memory event, and stays out of forked children.
Error map_shared(int file, std::uint64_t offset, std::uint64_t bytes, char*& address);
/// Maps fresh memory of the process's own instead.
Error map_private(std::uint64_t bytes, char*& address);
void unmap(char* address, std::uint64_t bytes);

/// Returns whether all processes of this machine see at once the bytes that one of them writes through a
/// mapping of the file. 9p, for one, refuses such mappings or keeps a copy of the file for each process that
/// opens it. Uses 16 bytes at `offset`, which must exist, and leaves zeros.
bool mappings_are_shared(int file, const std::string& path, std::uint64_t offset);

}  // namespace pinion::runlog
