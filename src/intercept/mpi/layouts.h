// Finds where the data of datatypes lie. The pieces of a derived type are decoded at its first use with gaps,
// from the calls that made it, and kept until it is freed. Any thread that may call MPI, outside of memory
// hooks; a mutex guards the kept ones, and is free while MPI is asked.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/range.h"
#include "intercept/mpi/library.h"
#include "intercept/mpi/touched.h"

namespace pinion::mpi::PINION_MPI_ABI {

/// The extent of an element, from its first byte to its last, as MPI gives it. MPI may be asked about its
/// type.
struct Layout {
  Aint extent = 0, true_lower = 0, true_extent = 0;

  Layout() = default;
  explicit Layout(Datatype type) {
    Aint lower = 0;
    library().type_extent(type, &lower, &extent);
    library().type_true_extent(type, &true_lower, &true_extent);
  }
  /// Whether elements of so many bytes begin at their address and leave no gaps.
  bool is_dense(Aint size) const { return extent == size && true_lower == 0 && true_extent == size; }
  /// Returns the range from the first byte of `n` elements to the last. A negative extent walks downwards.
  Range hull(Address buffer, Aint n) const {
    const Aint last = (n - 1) * extent;
    const Address base = buffer + static_cast<Address>(true_lower);
    return {base + static_cast<Address>(std::min<Aint>(0, last)),
            base + static_cast<Address>(std::max<Aint>(0, last) + true_extent)};
  }
};

/// The pieces of one element, in the order of their offsets, neighbours joined over gaps of less than a page.
/// Null where there are too many, or the type cannot be decoded.
using Runs = std::shared_ptr<const std::vector<Run>>;
Runs runs_of(Datatype type, const Layout& layout);

/// The type is freed, or its handle is used for another one.
void forget_runs(Datatype type);

}  // namespace pinion::mpi::PINION_MPI_ABI
