// Whether this thread is inside the progress of an endpoint, where a wait for peers would never end: their
// messages are delivered there alone. Any thread; hooks may ask.
#pragma once

namespace pinion::transfer {

/// Marks progress for as long as it lives; they nest.
class Progressing {
 public:
  Progressing() { ++t_depth; }
  ~Progressing() { --t_depth; }
  Progressing(const Progressing&) = delete;
  Progressing& operator=(const Progressing&) = delete;

  static bool is() { return t_depth > 0; }

 private:
  static inline constinit thread_local unsigned t_depth = 0;
};

}  // namespace pinion::transfer
