// The data of typed buffers: how many bytes, on which memory. Questions to MPI about a type are asked only
// where its handle is known to be good. Any thread that may call MPI; never from hooks.
#pragma once

#include "intercept/mpi/known_handles.h"
#include "intercept/mpi/layouts.h"
#include "intercept/mpi/type_sizes.h"

namespace pinion::mpi::PINION_MPI_ABI {

/// The data of `n` elements, n > 0, of a type that the table lacks, or has no size of yet.
std::uint64_t asked_bytes(HandleQuestions& questions, Aint n, Datatype type);

/// The data of `n` elements; 0 while MPI must not be asked.
inline std::uint64_t bytes_of(HandleQuestions& questions, Aint n, Datatype type) {
  if (n <= 0) return 0;
  const std::uint64_t size = g_type_sizes.find(type).bytes;
  return size != 0 ? size * static_cast<std::uint64_t>(n) : asked_bytes(questions, n, type);
}

/// The range of `n` elements where they are known to leave no gaps, free of questions to MPI; else empty.
inline Range dense_range(const void* buffer, Aint n, Datatype type) {
  const TypeSizes::Size size = g_type_sizes.find(type);
  const auto begin = reinterpret_cast<Address>(buffer);
  return {begin, size.dense && n > 0 ? begin + size.bytes * static_cast<std::uint64_t>(n) : begin};
}

/// `n` elements of a type at an address.
struct Elements {
  Address at;
  Aint n;
  Datatype type;
  Layout layout;
  std::uint64_t data;  ///< its bytes

  Range hull() const { return layout.hull(at, n); }
  bool have_gaps() const { return hull().bytes() != data; }
  void add_to(Touched& touched) const {
    if (!have_gaps()) return touched.add(hull(), data);
    if (const Runs runs = runs_of(type, layout)) return touched.add(at, *runs, n, layout.extent);
    touched.give_up();
  }
};

}  // namespace pinion::mpi::PINION_MPI_ABI
