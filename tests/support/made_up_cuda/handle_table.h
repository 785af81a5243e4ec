// Handles of one kind of object. The lowest free number is given out, so a handle recurs soon after its
// object was destroyed, as the driver's do.
//
// Owns a reference to each object. The driver's mutex guards it.
#pragma once

#include <memory>
#include <vector>

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

template <class T, std::uintptr_t kKind>
class HandleTable {
 public:
  Handle add(std::shared_ptr<T> object) {
    std::size_t place = 0;
    while (place < objects_.size() && objects_[place]) ++place;
    if (place == objects_.size()) objects_.emplace_back();
    objects_[place] = std::move(object);
    return reinterpret_cast<Handle>(kBase + place * kStep);
  }
  /// Null: no such object lives.
  std::shared_ptr<T> find(const void* handle) const {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    const std::size_t place = (value - kBase) / kStep;
    return value < kBase || (value - kBase) % kStep != 0 || place >= objects_.size() ? nullptr
                                                                                     : objects_[place];
  }
  std::shared_ptr<T> remove(const void* handle) {
    auto object = find(handle);
    if (object) objects_[(reinterpret_cast<std::uintptr_t>(handle) - kBase) / kStep].reset();
    return object;
  }
  template <class Visit>
  void each(Visit&& visit) const {
    for (const auto& object : objects_) {
      if (object) visit(object);
    }
  }

 private:
  static constexpr std::uintptr_t kBase = (std::uintptr_t{0xc0da} << 48) | (kKind << 40), kStep = 64;
  std::vector<std::shared_ptr<T>> objects_;
};

}  // namespace pinion::made_up_cuda
