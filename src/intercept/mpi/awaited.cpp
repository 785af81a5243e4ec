#include "intercept/mpi/awaited.h"

#include <cerrno>
#include <utility>

#include "monitor/own_process.h"

namespace pinion::mpi {

Requests::Key Awaited::key_of(std::size_t i) const {
  if (many_ == nullptr) return few_[i];
  Requests::Key key = 0;
  std::memcpy(&key, static_cast<const char*>(many_) + i * bytes_, bytes_);
  return key;
}

/// The program's memory may have gone with the frames that the jump has left.
bool Awaited::is_there(std::size_t i) const {
  Requests::Key now = 0;
  const long read = read_memory(given_ + i * bytes_, &now, bytes_);
  return read == static_cast<long>(bytes_) ? now == key_of(i) : read < 0 && read != -EFAULT;
}

void Awaited::end_left_behind(ThreadContext& thread) {
  const std::size_t count = std::exchange(count_, 0);
  if (path_ != LeasePath::running()) return;  // the end of the run has ended them
  for (std::size_t i = 0; i < count; ++i)
    if (Requests::may_know(key_of(i)) && !is_there(i))
      Requests::instance().complete(thread, *path_, key_of(i));
}

}  // namespace pinion::mpi
