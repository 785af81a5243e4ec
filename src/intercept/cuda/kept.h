// Keeps what a call of the program has open in the front, in memory of the thread's own:
//
//   const Kept<SubmissionGate::Entry> entry(submission_gate(), stream);
//   return next(arguments...);
//
// An exception, or a cancellation, runs through the frames, and each ends what it has opened. A jump leaves
// frames without a word: the thread's next call, or its end, ends what they have left (outermost_call.h). So
// what is kept refers to no frame. In a child that is forked inside of a call, what is open is the parent's,
// and is forgotten.
//
// Limits: an exclusion holds others up between a jump and that next call; threads finish pieces of a copy
// that a jump has left; a signal handler on a stack of its own must not call the driver in the middle of a
// call; and what a destructor calls must not throw, or jump.
//
// Objects lie on a stack of their own, newest last, and end in the reverse order. Owned by the thread;
// outside of memory hooks. An object that its constructor's exception leaves was never there.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace pinion::cuda {

/// A kind of kept objects.
struct KeptKind {
  std::size_t bytes;
  void (*end)(void* object);
};

/// Objects that the thread's call has open, one behind the other, each followed by its kind.
struct OpenCall {
  static constexpr std::size_t kBytes = 1024, kMostOfOne = 256;

  const void* frame = nullptr;  ///< the outermost call's (monitor/open_frame.h)
  unsigned char* bottom = nullptr;
  unsigned char* top = nullptr;
  unsigned char* limit = nullptr;
  alignas(16) unsigned char memory[kBytes]{};
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local OpenCall t_open{};

/// Ends what the thread's call has left open.
void end_open_call();
/// Makes the memory ready at the thread's first object, and has the thread's end and forks seen.
void begin_keeping();

template <class T>
class Kept {
 public:
  template <class... A>
  [[gnu::always_inline]] explicit Kept(A&&... arguments) : place_(room()) {
    // The constructor may keep objects of its own behind it.
    place_->kind = &kUnmade;
    if (begin() == t_open.top) [[likely]]
      t_open.top = behind();
    Making making{this};
    new (&place_->object) T(std::forward<A>(arguments)...);
    making.of = nullptr;
    place_->kind = &kKind;
  }
  [[gnu::always_inline]] ~Kept() {
    if (t_open.top == behind()) [[likely]] {
      place_->object.~T();
      t_open.top = begin();
    } else {
      end_elsewhere();
    }
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  T& operator*() const { return place_->object; }
  T* operator->() const { return &place_->object; }

 private:
  struct Place {
    union {
      T object;
    };
    const KeptKind* kind;
    Place() {}
    ~Place() {}
  };
  static_assert(alignof(Place) == alignof(void*) && sizeof(Place) <= OpenCall::kMostOfOne);

  static constexpr KeptKind kKind{sizeof(Place), [](void* object) { static_cast<T*>(object)->~T(); }};
  static constexpr KeptKind kUnmade{sizeof(Place), [](void*) {}};
  /// Gives the place back where an exception leaves the constructor.
  struct Making {
    const Kept* of;
    [[gnu::always_inline]] ~Making() {
      if (of != nullptr && t_open.top == of->behind()) t_open.top = of->begin();
    }
  };

  unsigned char* begin() const { return reinterpret_cast<unsigned char*>(place_); }
  unsigned char* behind() const { return begin() + sizeof(Place); }

  [[gnu::always_inline]] static Place* room() {
    if (t_open.top + sizeof(Place) > t_open.limit) [[unlikely]]
      return first_or_more();
    return reinterpret_cast<Place*>(t_open.top);
  }
  /// More objects than there is room for lie elsewhere, and a jump leaves them for good.
  [[gnu::noinline]] static Place* first_or_more() {
    if (t_open.limit == nullptr) begin_keeping();
    return t_open.top + sizeof(Place) > t_open.limit ? new Place : reinterpret_cast<Place*>(t_open.top);
  }
  /// It lies elsewhere, or its constructor has forked; or it is without a kind: a forked child has forgotten
  /// it, or a call on another stack has taken its call for left.
  [[gnu::noinline]] void end_elsewhere() {
    if (place_->kind != &kKind) return;
    place_->object.~T();
    if (begin() < t_open.memory || begin() >= t_open.memory + OpenCall::kBytes) delete place_;
  }

  Place* const place_;
};

/// Keeps a cancellation out of calls that a destructor makes, which nothing may leave.
class Uncancelled {
 public:
  Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace pinion::cuda
