#include "intercept/mpi/buffers.h"

#include <algorithm>
#include <type_traits>

namespace pinion::mpi::PINION_MPI_ABI {

namespace {

constexpr int kAll = OtherSide::kAll;

Range united(Range a, Range b) {
  return a.empty() ? b : Range{std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

struct Matched {
  Message message;
  std::uint64_t bytes = kNothing;  ///< kNothing: none
};
thread_local Matched t_matched;

/// The size of `n` elements whose type is larger than an int tells.
std::uint64_t huge_bytes(Aint n, Datatype type) {
  Count size = 0;
  if (!library().type_size_x || library().type_size_x(type, &size) != kSuccess || size < 0) return 0;
  return static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n);
}

}  // namespace

void note_matched(Message message, std::uint64_t bytes) { t_matched = {message, bytes}; }

std::uint64_t asked_bytes(HandleQuestions& questions, Aint n, Datatype type) {
  if (type == library().datatype_null) return 0;
  const bool expected = g_type_sizes.expects(type);
  if (!expected && !questions.may_ask(KnownHandles::datatypes(), key_of(type))) return 0;
  int size = 0;
  library().type_size(type, &size);
  if (expected && size > 0)
    g_type_sizes.learn(type, {static_cast<std::uint32_t>(size), Layout(type).is_dense(size)});
  return size >= 0 ? static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n) : huge_bytes(n, type);
}

// ---- one range ----

void Buffers::take(Range range, Access access, int other, std::int64_t arrives) {
  const int peer = side_.peer(other);
  if (remembered_) {
    remembered_->uses.push_back({range, access, peer, arrives != kAsNamed});
  } else if (arrives != kAsNamed) {
    leases_.acquire_arriving(range, peer, arrives);
  } else {
    leases_.acquire(range, access, peer);
  }
}

void Buffers::exposes(void* memory, Aint bytes) {
  if (bytes <= 0 || static_cast<std::uint64_t>(bytes) < least_ || !concerns(kAll)) return;
  const auto begin = reinterpret_cast<Address>(memory);
  // Memory that cannot be registered costs nothing here: each transfer to it would be copied by itself.
  leases_.acquire({begin, begin + static_cast<Address>(bytes)},
                  Access::write | Access::remote_read | Access::remote_write, side_.peer(), Refusal::report);
}

// ---- which bytes ----

[[gnu::always_inline]] inline bool Buffers::lease_quickly(const void* buffer, Aint n, Datatype type,
                                                          Access access, std::int64_t arrives) {
  const Range range = dense_range(buffer, n, type);
  // The least bytes are one or more, so an empty range has too few.
  return range.bytes() >= least_ && !remembered_ && !node_is_known() && leases_.enter_quickly() &&
         leases_.lease_quickly(range, access, arrives != kAsNamed);
}

void Buffers::lease(const void* buffer, Aint n, Datatype type, Access access, int other) {
  if (!lease_quickly(buffer, n, type, access, kAsNamed)) [[unlikely]]
    lease_otherwise(buffer, n, type, access, other);
}

void Buffers::lease_arriving(void* buffer, Aint n, Datatype type, int source, std::int64_t arrives) {
  if (!lease_quickly(buffer, n, type, Access::write, arrives)) [[unlikely]]
    lease_arriving_otherwise(buffer, n, type, source, arrives);
}

[[gnu::noinline]] void Buffers::lease_otherwise(const void* buffer, Aint n, Datatype type, Access access,
                                                int other) {
  lease_range(buffer, n, type, access, other, kAsNamed);
}

[[gnu::noinline]] void Buffers::lease_arriving_otherwise(void* buffer, Aint n, Datatype type, int source,
                                                         std::int64_t arrives) {
  lease_range(buffer, n, type, Access::write, source, arrives);
}

void Buffers::lease_range(const void* buffer, Aint n, Datatype type, Access access, int other,
                          std::int64_t arrives) {
  Range range = dense_range(buffer, n, type);
  if (range.empty()) {
    const std::uint64_t bytes = bytes_of(questions_, n, type);
    if (bytes < least_) return;
    const Elements data{reinterpret_cast<Address>(buffer), n, type, Layout(type), bytes};
    // With gaps, the number of bytes that arrive leaves their places open.
    if (data.have_gaps()) return lease_with_gaps(data, access, other);
    range = data.hull();
  }
  if (range.bytes() >= least_ && concerns(other)) take(range, access, other, arrives);
}

void Buffers::receives_matched(void* buffer, Aint n, Datatype type, const Message* message) {
  if (!message) return;
  const bool known = t_matched.bytes != kNothing && t_matched.message == *message;
  lease_arriving(buffer, n, type, kAll, known ? static_cast<std::int64_t>(t_matched.bytes) : kLearnt);
}

[[gnu::noinline]] void Buffers::lease_with_gaps(const Elements& elements, Access access, int other) {
  if (!concerns(other)) return;
  Touched touched;
  elements.add_to(touched);
  touched.for_each_to_lease(elements.hull(), elements.data, least_,
                            [&](Range range) { take(range, access, other); });
}

template <class BlockOf>
void Buffers::lease_each(Aint blocks, BlockOf block, Access access) {
  Range all{};
  std::uint64_t data = 0;
  bool have_gaps = false;
  for (Aint i = 0; i < blocks; ++i) {
    const Elements one = block(i);
    if (one.data == 0) continue;
    all = united(all, one.hull());
    data += one.data;
    have_gaps = have_gaps || one.have_gaps();
  }
  const auto take_range = [&](Range range) { take(range, access, kAll); };
  if (have_gaps) {
    if (!concerns(kAll)) return;
    Touched touched;
    for (Aint i = 0; i < blocks && touched.known(); ++i)
      if (const Elements one = block(i); one.data > 0) one.add_to(touched);
    if (touched.for_each_to_lease(all, data, least_, take_range)) return;
  } else if (!scattered(all, data)) {
    if (concerns(kAll)) take_range(all);
    return;
  }
  for (Aint i = 0; i < blocks; ++i)
    if (const Elements one = block(i); one.data > 0 && pays(one.hull(), one.data, least_) && concerns(kAll))
      take_range(one.hull());
}

template <class N, class D>
void Buffers::lease_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type,
                           Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets) return;
  if (bytes_of(questions_, sum_of(counts, blocks), type) < least_) return;
  const Layout layout(type);
  const std::uint64_t bytes = bytes_of(questions_, 1, type);
  const auto block = [&](Aint i) {
    const auto n = static_cast<Aint>(counts[i]);
    const Aint offset = static_cast<Aint>(offsets[i]) * layout.extent;
    return Elements{reinterpret_cast<Address>(buffer) + static_cast<Address>(offset), n, type, layout,
                    n > 0 ? static_cast<std::uint64_t>(n) * bytes : 0};
  };
  lease_each(blocks, block, access);
}

template <class N, class D>
void Buffers::lease_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types,
                          Aint blocks, Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets || !types) return;
  std::uint64_t data = 0;
  for (Aint i = 0; i < blocks; ++i) data += bytes_of(questions_, static_cast<Aint>(counts[i]), types[i]);
  if (data < least_) return;
  const auto block = [&](Aint i) {
    const auto n = static_cast<Aint>(counts[i]);
    const std::uint64_t bytes = bytes_of(questions_, n, types[i]);
    return Elements{reinterpret_cast<Address>(buffer) + static_cast<Address>(static_cast<Aint>(offsets[i])),
                    n, types[i], bytes > 0 ? Layout(types[i]) : Layout(), bytes};
  };
  lease_each(blocks, block, access);
}

// The kinds of counts and displacements that MPI has.
#define PINION_INSTANTIATE(N, D)                                                                \
  template void Buffers::lease_blocks(const void*, const N*, const D*, Aint, Datatype, Access); \
  template void Buffers::lease_typed(const void*, const N*, const D*, const Datatype*, Aint, Access);
PINION_INSTANTIATE(int, int)
PINION_INSTANTIATE(int, Aint)
PINION_INSTANTIATE(Count, Aint)
#undef PINION_INSTANTIATE

}  // namespace pinion::mpi::PINION_MPI_ABI
