// Whether this thread is inside some part of the code: a class derives from its own mark, and objects of it
// stand for the time inside. Any thread; hooks may ask.
#pragma once

namespace pinion {

/// Marks the thread for as long as it lives; marks of a class nest.
template <class Part>
class ThreadMark {
 public:
  ThreadMark() { ++t_depth; }
  ~ThreadMark() { --t_depth; }
  ThreadMark(const ThreadMark&) = delete;
  ThreadMark& operator=(const ThreadMark&) = delete;

  static bool is() { return t_depth > 0; }

 private:
  static inline constinit thread_local unsigned t_depth = 0;
};

}  // namespace pinion
