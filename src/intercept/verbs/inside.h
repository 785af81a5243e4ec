// Whether a thread is inside a call of libibverbs that Pinion has made or let pass: the library calls some of
// its own functions by their public names, and these are nobody's requests.
#pragma once

namespace pinion::verbs {

class Inside {
 public:
  Inside() { ++depth_; }
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  static bool now() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace pinion::verbs
