// Whether this thread runs a handler or a completion, where nothing may wait.
#pragma once

namespace pinion::firehose {

/// Marks a handler or completion for as long as it lives; they nest.
class Inside {
 public:
  Inside() { ++t_depth; }
  ~Inside() { --t_depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  static bool is() { return t_depth > 0; }

 private:
  static inline constinit thread_local unsigned t_depth = 0;
};

}  // namespace pinion::firehose
