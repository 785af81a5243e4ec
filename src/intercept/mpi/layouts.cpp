#include "intercept/mpi/layouts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <atomic>

#include "base/process_mutex.h"

namespace pinion::mpi::PINION_MPI_ABI {

namespace {

// ---- the decoding that programs compile for their mpi.h, for this ABI ----

namespace decoding {

using MPI_Aint = Aint;
using MPI_Count = Count;
using MPI_Datatype = Datatype;
constexpr int MPI_SUCCESS = kSuccess;
constexpr int MPI_COMBINER_DUP = Combiners::dup;
constexpr int MPI_COMBINER_CONTIGUOUS = Combiners::contiguous;
constexpr int MPI_COMBINER_VECTOR = Combiners::vector;
constexpr int MPI_COMBINER_HVECTOR = Combiners::hvector;
constexpr int MPI_COMBINER_INDEXED = Combiners::indexed;
constexpr int MPI_COMBINER_HINDEXED = Combiners::hindexed;
constexpr int MPI_COMBINER_INDEXED_BLOCK = Combiners::indexed_block;
constexpr int MPI_COMBINER_HINDEXED_BLOCK = Combiners::hindexed_block;
constexpr int MPI_COMBINER_STRUCT = Combiners::structure;
constexpr int MPI_COMBINER_SUBARRAY = Combiners::subarray;
constexpr int MPI_COMBINER_DARRAY = Combiners::darray;
constexpr int MPI_COMBINER_RESIZED = Combiners::resized;
constexpr int MPI_ORDER_C = kOrderC;
constexpr int MPI_DISTRIBUTE_BLOCK = kDistributeBlock;
constexpr int MPI_DISTRIBUTE_CYCLIC = kDistributeCyclic;
constexpr int MPI_DISTRIBUTE_DFLT_DARG = kDistributeDefault;
const Datatype& MPI_SHORT_INT = g_library.short_int;

int MPI_Type_size(Datatype type, int* bytes) { return library().type_size(type, bytes); }
int MPI_Type_get_extent(Datatype type, Aint* lower, Aint* extent) {
  return library().type_extent(type, lower, extent);
}
int MPI_Type_free(Datatype* type) { return library().type_free(type); }

int pinion_mpi_get_envelope(Datatype type, Count* ints, Count* addresses, Count* counts, Count* types,
                            int* combiner) {
  if (library().type_envelope_large)
    return library().type_envelope_large(type, ints, addresses, counts, types, combiner);
  int int_count = 0, address_count = 0, type_count = 0;
  const int result = library().type_envelope(type, &int_count, &address_count, &type_count, combiner);
  *ints = int_count;
  *addresses = address_count;
  *counts = 0;
  *types = type_count;
  return result;
}

int pinion_mpi_get_contents(Datatype type, Count int_count, Count address_count, Count count_count,
                            Count type_count, int* ints, Aint* addresses, Count* counts, Datatype* types) {
  if (library().type_contents_large)
    return library().type_contents_large(type, int_count, address_count, count_count, type_count, ints,
                                         addresses, counts, types);
  return library().type_contents(type, static_cast<int>(int_count), static_cast<int>(address_count),
                                 static_cast<int>(type_count), ints, addresses, types);
}

#include "pinion/mpi_datatype.h"

}  // namespace decoding

// Bounds of the time that the first use of a type may take.
constexpr std::size_t kMostSteps = 100'000;

/// Sorts the runs by offset, and joins those that overlap or lie near each other.
std::vector<Run> in_order(std::vector<Run> runs, Aint gap) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  std::vector<Run> joined;
  for (const Run& run : runs) {
    const auto end_of = [](const Run& r) { return r.offset + static_cast<Aint>(r.bytes); };
    if (joined.empty() || run.offset - end_of(joined.back()) > gap) {
      joined.push_back(run);
      continue;
    }
    Run& last = joined.back();
    last.bytes = static_cast<std::size_t>(std::max(end_of(last), end_of(run)) - last.offset);
    last.data = std::min<std::uint64_t>(last.data + run.data, last.bytes);
  }
  return joined;
}

Runs decode(Datatype type, const Layout& layout) {
  const Library& mpi = library();
  if (!mpi.type_free || !mpi.type_envelope || !mpi.type_contents) return nullptr;
  const Aint gap = static_cast<Aint>(page_size()) - 1;
  decoding::pinion_mpi_bounds bounds{gap, Touched::kMost, kMostSteps};
  decoding::pinion_mpi_list list;
  const int error = decoding::pinion_mpi_flatten(type, &bounds, &list);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < list.count; ++i)
    runs.push_back({list.pieces[i].offset, static_cast<std::size_t>(list.pieces[i].bytes),
                    static_cast<std::uint64_t>(list.pieces[i].data)});
  std::free(list.pieces);
  if (error != 0 || runs.empty()) return nullptr;
  runs = in_order(std::move(runs), gap);
  // MPI's own answer about the first byte and the last must agree: a type that is decoded wrongly is left
  // alone.
  const Run &first = runs.front(), &last = runs.back();
  if (first.offset != layout.true_lower ||
      last.offset + static_cast<Aint>(last.bytes) != layout.true_lower + layout.true_extent)
    return nullptr;
  return std::make_shared<const std::vector<Run>>(std::move(runs));
}

// ---- those known ----

struct Kept {
  std::uintptr_t type = 0;
  Runs runs;
};
constexpr std::size_t kPlaces = 128;

constinit ProcessMutex g_mutex;
constinit std::atomic<bool> g_any_kept{false};

Kept& place_of(std::uintptr_t key) REQUIRES(g_mutex) {
  static auto* kept =
      new std::array<Kept, kPlaces>;  // never destroyed: threads may look while the process exits
  return (*kept)[(key * 0x9E3779B97F4A7C15ull >> 32) % kPlaces];
}

}  // namespace

Runs runs_of(Datatype type, const Layout& layout) {
  const std::uintptr_t key = key_of(type);
  {
    const ProcessLock lock(g_mutex);
    const Kept& kept = place_of(key);
    if (kept.type == key) return kept.runs;
  }
  Runs runs = decode(type, layout);
  const ProcessLock lock(g_mutex);
  place_of(key) = {key, runs};
  g_any_kept.store(true, std::memory_order_relaxed);
  return runs;
}

void forget_runs(Datatype type) {
  if (!g_any_kept.load(std::memory_order_relaxed)) return;
  Kept old;
  const ProcessLock lock(g_mutex);
  Kept& kept = place_of(key_of(type));
  if (kept.type == key_of(type)) std::swap(old, kept);
}

}  // namespace pinion::mpi::PINION_MPI_ABI
