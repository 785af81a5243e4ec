// Notes the outermost frame of a kind that a thread is inside of, so that frames below it find that out. A
// jump (longjmp, a switch of stacks that is never taken back) leaves frames without a word; the note is then
// of a frame that is gone, and the next one that asks takes its place.
//
// A frame is gone if the one that asks lies no deeper in the stack, or if its memory has other contents: a
// thread that is inside of it has left it alone. Where the kernel refuses to tell, it counts as there. On
// another stack it may count as gone too early, so close() checks that the note is its own.
//
// Lives in the frame. The owner of the note is the thread; outside of hooks.
#pragma once

#include <cerrno>

#include "monitor/own_process.h"

namespace pinion {

class OpenFrame {
 public:
  enum class Opened {
    outermost,
    after_a_jump,  ///< outermost, and what the frame that is gone had is left behind
    inside,        ///< of another one: nothing has changed
  };

  OpenFrame() = default;
  ~OpenFrame() { close(); }
  OpenFrame(const OpenFrame&) = delete;
  OpenFrame& operator=(const OpenFrame&) = delete;

  Opened open(const void*& note) {
    const void* const before = note;
    if (before != nullptr && is_there(before, &note)) return Opened::inside;
    note_ = &note;
    note = this;
    return before == nullptr ? Opened::outermost : Opened::after_a_jump;
  }
  void close() {
    if (note_ != nullptr && *note_ == this) *note_ = nullptr;
  }

  /// Whether the thread is inside of the frame that is noted.
  static bool is_inside(const void* const& note) {
    const char here = 0;
    return note != nullptr && is_there_above(&here, note, &note);
  }

 private:
  [[gnu::noinline]] bool is_there(const void* frame, const void* const* note) const {
    return is_there_above(this, frame, note);
  }
  static bool is_there_above(const void* deeper, const void* frame, const void* const* note) {
    if (deeper >= frame) return false;
    const void* const* found = nullptr;
    const long bytes = read_memory(reinterpret_cast<Address>(frame), &found, sizeof found);
    return bytes == static_cast<long>(sizeof found) ? found == note : bytes != -EFAULT;
  }

  const void** note_ = nullptr;  ///< first, so that is_there() finds it
};

}  // namespace pinion
