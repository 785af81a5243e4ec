// The requests of the completing call (Wait, Test and their kin) that a thread is in. MPI may have ended some
// of them when an error handler of the program's jumps out of the call. The thread's next call finds the
// note, or its end, and completes those whose handle the program has no more where it was.
//
// Owns one note a thread; used by its thread alone, outside of hooks.
#pragma once

#include <array>
#include <cstring>

#include "intercept/mpi/requests.h"

namespace pinion::mpi {

class Awaited {
 public:
  /// More of them lie in `before` until end(), and a jump leaves them there.
  static constexpr std::size_t kFew = 16;

  /// `given`: the program's handles; `before`: a copy. In line: each wait for a large message begins so.
  template <class Request>
  void begin(LeasePath& path, const Request* given, const Request* before, std::size_t n) {
    path_ = &path;
    given_ = reinterpret_cast<Address>(given);
    bytes_ = sizeof(Request);
    many_ = n <= kFew ? nullptr : before;
    // A handle of fewer bytes than a key has the low ones (abi.h).
    for (std::size_t i = 0; i < n && n <= kFew; ++i) {
      few_[i] = 0;
      std::memcpy(&few_[i], &before[i], sizeof(Request));
    }
    count_ = n;
  }
  void end() { count_ = 0; }
  /// The thread has left the call by a jump.
  void end_left_behind(ThreadContext& thread);

 private:
  Requests::Key key_of(std::size_t i) const;
  bool is_there(std::size_t i) const;

  std::size_t count_ = 0;
  LeasePath* path_ = nullptr;
  Address given_ = 0;
  std::size_t bytes_ = 0;       ///< of a handle
  const void* many_ = nullptr;  ///< null: the copy is here
  std::array<Requests::Key, kFew> few_{};
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Awaited t_awaited{};

}  // namespace pinion::mpi
