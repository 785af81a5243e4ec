// Another library that patches libc's functions, as UCX, Open MPI and libfabric do: makes the code writable
// with mprotect, writes an absolute jump over the entry, makes it unwritable. One thread.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "base/range.h"
#include "monitor/code_patch.h"

namespace pinion::test {

constexpr std::size_t kForeignPatchBytes = 16;
using ForeignPatch = std::array<unsigned char, kForeignPatchBytes>;

/// The absolute jump that UCX and Open MPI write (x86-64), or a like one.
inline ForeignPatch absolute_jump(const void* target) {
#if defined(__x86_64__)
  ForeignPatch patch = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3, 0x90, 0x90, 0x90};
  std::memcpy(&patch[2], &target, sizeof target);
#else
  ForeignPatch patch = {0x4f, 0x00, 0x00, 0x58, 0xe0, 0x01, 0x1f, 0xd6};
  std::memcpy(&patch[8], &target, sizeof target);
#endif
  return patch;
}

/// Another library's patcher at a function's entry; at the end everything is as it was.
class ForeignPatcher {
 public:
  explicit ForeignPatcher(const char* function = "munmap")
      : entry_(dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), function)), original_(read()) {}
  ~ForeignPatcher() { write(original_); }
  ForeignPatch read() const {
    ForeignPatch patch;
    std::memcpy(patch.data(), entry_, patch.size());
    return patch;
  }
  void write(const ForeignPatch& patch) const {
    open();
    overwrite(patch);
    close();
  }
  // These patch in steps.
  void open() const { protect(PROT_READ | PROT_WRITE | PROT_EXEC); }
  void close() const { protect(PROT_READ | PROT_EXEC); }
  void overwrite(const ForeignPatch& patch) const {
    std::memcpy(entry_, patch.data(), patch.size());
    __builtin___clear_cache(static_cast<char*>(entry_), static_cast<char*>(entry_) + patch.size());
  }
  void* entry() const { return entry_; }
  /// The entry's code, behind the landing pad that a libc built for CET or BTI has there.
  std::byte* code() const {
    auto* const code = static_cast<std::byte*>(entry_);
    return code + landing_pad_bytes(code);
  }

 private:
  void protect(int protection) const {
    const Range pages = Range::of(entry_, kForeignPatchBytes).to_pages();
    ASSERT_EQ(::mprotect(reinterpret_cast<void*>(pages.begin), pages.bytes(), protection), 0);
  }

  void* entry_;
  ForeignPatch original_;
};

}  // namespace pinion::test
