// The data of typed buffers: how many bytes, on which memory. Questions to MPI about a type are asked only
// where its handle is known to be good. Any thread that may call MPI; never from hooks.
#pragma once

#include "intercept/mpi/known_handles.h"
#include "intercept/mpi/layouts.h"
#include "intercept/mpi/type_sizes.h"

namespace pinion::mpi::PINION_MPI_ABI {

/// The size of `n` elements whose type is larger than an int tells.
std::uint64_t huge_bytes(Aint n, Datatype type);

/// The data of `n` elements; 0 while MPI must not be asked.
inline std::uint64_t bytes_of(HandleQuestions& questions, Aint n, Datatype type) {
  if (n <= 0 || type == library().datatype_null) return 0;
  int size = static_cast<int>(g_type_sizes.find(type));
  if (size == 0) {
    if (!g_type_sizes.expects(type) && !questions.may_ask(KnownHandles::datatypes(), key_of(type))) return 0;
    library().type_size(type, &size);
    g_type_sizes.learn(type, size);
  }
  return size >= 0 ? static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n) : huge_bytes(n, type);
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
