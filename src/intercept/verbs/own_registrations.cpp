#include "intercept/verbs/own_registrations.h"

#include <new>
#include <utility>

namespace pinion::verbs {

OwnRegistrations& OwnRegistrations::instance() {
  static constinit OwnRegistrations all;
  return all;
}

bool OwnRegistrations::add(const ibv_mr* mr, const OwnRegistration& registration) {
  const MutexLock lock(mutex_);
  try {
    if (all_ == nullptr) all_ = new All;
    all_->insert_or_assign(mr, registration);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

std::optional<OwnRegistration> OwnRegistrations::take(const ibv_mr* mr) {
  const MutexLock lock(mutex_);
  if (all_ == nullptr) return std::nullopt;
  const auto found = all_->find(mr);
  if (found == all_->end()) return std::nullopt;
  const OwnRegistration registration = found->second;
  all_->erase(found);
  return registration;
}

std::optional<std::uint64_t> OwnRegistrations::resize(const ibv_mr* mr, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (all_ == nullptr) return std::nullopt;
  const auto found = all_->find(mr);
  if (found == all_->end()) return std::nullopt;
  return std::exchange(found->second.bytes, bytes);
}

}  // namespace pinion::verbs
