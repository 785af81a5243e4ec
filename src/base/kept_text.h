// A small text file of the kernel's that is read again and again, such as /proc/uptime. It stays open,
// because a descriptor that came and went each time could take a number that the program is about to use.
//
// Owns the descriptor. One thread at a time, outside of hooks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/kept_file.h"

namespace pinion {

class KeptText {
 public:
  KeptText() = default;
  explicit KeptText(std::string path);

  bool is_open() const { return file_.is_open(); }
  /// Whether the program has closed the descriptor.
  bool is_lost() const { return is_open() && file_.get() < 0; }
  /// Reads the file's beginning into `text`, which ends with a 0 then. Empty: there is no such file. Where
  /// the program has closed the descriptor, a thread with files of its own reads.
  template <std::size_t N>
  std::string_view read(char (&text)[N]) const {
    return {text, read(text, N)};
  }
  void close() { file_.close(); }

 private:
  std::size_t read(char* text, std::size_t size) const;

  std::string path_;
  KeptFile file_;
};

}  // namespace pinion
