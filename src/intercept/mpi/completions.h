// Completion of requests, for the wrappers of Wait and Test. MPI overwrites the handles of finished requests,
// so they are copied before the call. Lives in the wrapper's frame.
#pragma once

#include <array>
#include <vector>

#include "intercept/mpi/call_scope.h"
#include "intercept/mpi/requests.h"

namespace pinion::mpi {

class Completions {
 public:
  Completions(CallScope& scope, MPI_Request* requests, int count) : scope_(scope), requests_(requests) {
    if (Requests::instance().empty() || count <= 0 || !requests) return;
    count_ = count;
    if (static_cast<std::size_t>(count) > few_.size()) many_.resize(static_cast<std::size_t>(count));
    before_ = many_.empty() ? few_.data() : many_.data();
    std::copy_n(requests, count, before_);
  }

  /// Request number i is complete.
  void finished(int i) {
    if (i >= 0 && i < count_) Requests::instance().complete(scope_.thread(), scope_.engine(), before_[i]);
  }
  /// Those that a call says it completed (MPI_UNDEFINED, which is negative: none).
  void some(int done_count, const int* indices) {
    for (int i = 0; i < done_count; ++i) finished(indices[i]);
  }
  void all() {
    for (int i = 0; i < count_; ++i) finished(i);
  }
  /// After a call that failed: those whose handle went. What else it would say cannot be relied on.
  void gone() {
    const MPI_Request null = Library::get().request_null;
    for (int i = 0; i < count_; ++i) {
      if (requests_[i] == null && before_[i] != null) finished(i);
    }
  }

 private:
  CallScope& scope_;
  const MPI_Request* requests_;
  int count_ = 0;
  MPI_Request* before_ = nullptr;
  std::array<MPI_Request, 16> few_;
  std::vector<MPI_Request> many_;
};

}  // namespace pinion::mpi
