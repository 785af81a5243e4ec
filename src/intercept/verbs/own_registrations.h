// The registrations that the program makes without Pinion: those that pass by. They are known by the address
// of their handle, which is never read. Their bytes count against the limits (lease/lease.h), and the
// time of those that pass by because their keys are strict is counted.
//
// One short mutex. In a forked child it may be held for ever: nothing here is called there. Any thread; not
// from hooks.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "runlog/format.h"

namespace pinion::verbs {

struct OwnRegistration {
  ibv_context* context = nullptr;
  std::uint64_t bytes = 0;  ///< of whole pages
  runlog::PassedFor why = runlog::PassedFor::room;
};

class OwnRegistrations {
 public:
  /// The process's. Usable before constructors of this library have run.
  static OwnRegistrations& instance();

  /// False where there is no memory for it.
  bool add(const ibv_mr* mr, const OwnRegistration& registration);
  /// Nothing for others.
  std::optional<OwnRegistration> take(const ibv_mr* mr);
  /// Changes the bytes of one, and returns the earlier ones. Nothing for others.
  std::optional<std::uint64_t> resize(const ibv_mr* mr, std::uint64_t bytes);
  /// Takes all of the device, and calls f(const OwnRegistration&) for each.
  template <class F>
  void take_all(const ibv_context* context, F&& f) {
    const MutexLock lock(mutex_);
    if (all_ == nullptr) return;
    std::erase_if(*all_, [&](const auto& entry) {
      if (entry.second.context != context) return false;
      f(entry.second);
      return true;
    });
  }

 private:
  using All = std::unordered_map<const ibv_mr*, OwnRegistration>;
  Mutex mutex_;
  All* all_ GUARDED_BY(mutex_) = nullptr;  ///< made when first needed, never freed
};

}  // namespace pinion::verbs
