// The line on a terminal that names the present step of a long command: on standard error, over its last
// form. Silent where standard error is no terminal. One thread.
#pragma once

#include <chrono>
#include <string>

namespace pinion::cli {

class Progress {
 public:
  explicit Progress(std::string command);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// "pinion simulate: row 3 of 24 (12 s)"
  void step(const std::string& what);
  /// Before other output; a later step shows the line again.
  void clear();

 private:
  const std::string command_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

}  // namespace pinion::cli
