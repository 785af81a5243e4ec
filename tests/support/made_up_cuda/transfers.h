// Transfers: rows of bytes from one place to another, each place on the device, in pinned or in pageable
// memory. The call decides which (prepare); the work moves the bytes (run).
//
// Plain values. prepare() under the driver's mutex, gather() and run() without it.
#pragma once

#include "support/made_up_cuda/registrations.h"

namespace pinion::made_up_cuda {

/// One end of a transfer.
struct Place {
  Address address = 0;
  std::size_t pitch = 0;  ///< from one row to the next
  std::size_t slice = 0;  ///< from one slice to the next
  bool device = false;
  bool drivers = false;  ///< memory of the driver's own, which is none of the program's
  RegistrationPointer registration;

  bool pageable() const { return !device && !registration; }
};

struct Transfer {
  Place from, to;
  std::size_t width = 0, height = 1, depth = 1;

  static Transfer linear(Address to, Address from, std::size_t bytes);
  std::size_t bytes() const { return width * height * depth; }
  Range range(const Place& place) const;
};

/// Decides what the ends are. An error: a range is not the device's, or leaves its registration.
/// `own_source`: the source is the driver's own memory, whatever is registered around it.
Result prepare(Transfer& transfer, bool own_source = false);
/// Reads the source into one run of bytes.
std::vector<char> gather(const Transfer& transfer);
/// Moves the bytes, from `staged` if it is given.
Result run(const Transfer& transfer, const std::vector<char>* staged = nullptr);

/// Reads a description of a 2D or 3D copy. False: it has arrays, or widths that exceed pitches.
bool describe(const gpu::Copy2D& shape, Transfer& transfer);
bool describe(const gpu::Copy3D& shape, Transfer& transfer);

}  // namespace pinion::made_up_cuda
