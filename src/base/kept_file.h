// A descriptor that Pinion keeps open inside the program, with the identity of its file. Programs close and
// overwrite descriptors that others opened (close_range, a loop over all numbers, dup2). So the number lies
// above those that programs meet, and each use checks that the file behind it is still the same.
//
// Owns the descriptor. get() and is_file() may be called by any thread at the same time; the rest belongs to
// one thread at a time. One race stays: another thread replaces the file between the check and the use, which
// takes a dup2() onto exactly this number.
#pragma once

#include <cstdint>

namespace pinion {

class KeptFile {
 public:
  KeptFile() = default;
  /// Takes over `descriptor` (negative: none) and moves it to a high number, close-on-exec.
  explicit KeptFile(int descriptor);
  ~KeptFile() { close(); }
  KeptFile(KeptFile&& other) noexcept { *this = static_cast<KeptFile&&>(other); }
  KeptFile& operator=(KeptFile&& other) noexcept;

  /// The descriptor; -1 when the program has closed or replaced it, and when the object is empty.
  int get() const { return is_file(number_) ? number_ : -1; }
  /// Whether a file was taken over and Pinion still keeps it; get() may return -1 nevertheless.
  bool is_open() const { return number_ >= 0; }
  /// Whether `descriptor` refers to the file that was taken over.
  bool is_file(int descriptor) const;
  /// Closes the descriptor if it is still this file's.
  void close();

 private:
  int number_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace pinion
