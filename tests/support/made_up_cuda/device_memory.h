// The memory of the made-up device: a file in memory, of which allocations are parts. The program sees fake
// addresses; touching one is a fault, as it is without a GPU's own mapping.
//
// Allocations are guarded by the caller (the driver's mutex). Views and positions never change: any thread.
#pragma once

#include <map>
#include <optional>

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

class DeviceMemory {
 public:
  static constexpr std::size_t kTotal = std::size_t{80} << 30;
  static constexpr std::size_t kBacked = std::size_t{16} << 30;

  DeviceMemory();

  /// 0: there is no room.
  DevicePointer allocate(std::size_t bytes, std::uint64_t context);
  /// Whether an allocation begins there.
  bool free(DevicePointer base);
  void free_all_of(std::uint64_t context);
  /// The allocation that holds the address.
  std::optional<Range> allocation(DevicePointer address) const;
  std::uint64_t context_of(DevicePointer address) const;
  /// Whether the range lies in one allocation.
  bool holds(Range range) const;
  bool is_device(DevicePointer address) const { return fake_.begin <= address && address < fake_.end; }

  char* view(DevicePointer address) const { return view_ + (address - fake_.begin); }
  std::size_t position(DevicePointer address) const { return address - fake_.begin; }
  int file() const { return file_; }
  std::size_t free_bytes() const;
  /// Claims that so much is free, less what is allocated from now on.
  void set_free_bytes(std::size_t bytes);

 private:
  struct Allocation {
    Address end;
    std::uint64_t context;
  };
  using Allocations = std::map<Address, Allocation>;
  Allocations::const_iterator find(Address address) const;

  int file_ = -1;
  char* view_ = nullptr;
  Range fake_;
  Allocations allocations_;
  std::size_t allocated_ = 0, room_ = kTotal;
};

}  // namespace pinion::made_up_cuda
