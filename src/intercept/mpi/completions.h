// Completion of requests, for the wrappers of Wait and Test. MPI overwrites the handles of finished requests,
// so they are copied before the call. Lives in the wrapper's frame.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "intercept/mpi/awaited.h"
#include "intercept/mpi/freed_requests.h"
#include "intercept/mpi/library.h"
#include "intercept/mpi/nesting.h"
#include "intercept/mpi/requests.h"

namespace pinion::mpi::PINION_MPI_ABI {

class Completions {
 public:
  /// Whether any of them may be ours; if not, the call passes on unchanged.
  static bool concern(const Request* requests, int n) {
    if (!Requests::any_known()) [[likely]]
      return false;
    if (!requests) return false;
    for (int i = 0; i < n; ++i)
      if (Requests::may_know(key_of(requests[i]))) return true;
    return false;
  }

  Completions(Request* requests, int n, Status* statuses) : given_(requests), statuses_(statuses) {
    if (nesting_.enter()) begin(requests, n);
  }
  ~Completions() {
    if (n_ > 0 && nesting_.holds()) t_awaited.end();
  }
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  /// The statuses for MPI to fill in: the program's own, or ours where the program ignores them.
  Status* statuses() const { return statuses_; }

  /// Makes the call. If an error handler of the program's throws out of it, requests that MPI has ended are
  /// complete.
  template <class Call>
  int call(Call call) {
    struct Left {
      ~Left() {
        if (completions != nullptr) completions->gone();
      }
      Completions* completions;
    } left{this};
    const int result = call();
    left.completions = nullptr;
    return result;
  }

  /// Request number i is complete; statuses()[at] is its status.
  void finished(int i, int at) {
    if (i < 0 || i >= n_) return;
    const Status& status = statuses_[at];
    Requests::instance().complete(nesting_.thread(), nesting_.lease_path(), key_of(before_[i]),
                                  status.cancelled() ? -1 : static_cast<std::int64_t>(status.bytes()));
  }
  /// Finishes those that a call reports complete (MPI_UNDEFINED, which is negative: none).
  void some(int done_count, const int* indices) {
    for (int at = 0; n_ > 0 && at < done_count; ++at) finished(indices[at], at);
  }
  void all() {
    for (int i = 0; i < n_; ++i) finished(i, i);
  }
  /// Completes those whose handle went in a call that failed. The rest of its answer is unreliable.
  void gone() {
    const Request null = library().request_null;
    for (int i = 0; i < n_; ++i) {
      if (given_[i] == null && before_[i] != null)
        Requests::instance().complete(nesting_.thread(), nesting_.lease_path(), key_of(before_[i]));
    }
  }

 private:
  void begin(const Request* requests, int n) {
    FreedRequests::poll(nesting_.thread(), nesting_.lease_path());
    n_ = n;
    const auto size = static_cast<std::size_t>(n);
    before_ = few_.data();
    if (size > few_.size()) {
      many_ = std::make_unique<Many>(size);
      before_ = many_->before.data();
    }
    std::copy_n(requests, size, before_);
    t_awaited.begin(nesting_.lease_path(), requests, before_, size);
    if (statuses_ != kStatusIgnore) return;
    statuses_ = few_statuses_.data();
    if (size > few_statuses_.size()) {
      many_->statuses.resize(size);
      statuses_ = many_->statuses.data();
    }
  }

  struct Many {
    explicit Many(std::size_t n) : before(n) {}
    std::vector<Request> before;
    std::vector<Status> statuses;
  };

  const Request* given_;
  Status* statuses_;
  int n_ = 0;
  Request* before_ = nullptr;
  Nesting nesting_;
  static constexpr std::size_t kFew = Awaited::kFew;
  std::array<Request, kFew> few_;
  std::array<Status, kFew> few_statuses_;
  std::unique_ptr<Many> many_;
};

}  // namespace pinion::mpi::PINION_MPI_ABI
