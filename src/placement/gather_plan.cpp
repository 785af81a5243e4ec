#include "placement/gather_plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/range.h"

namespace pinion {

namespace {

using Element = pinion_gather_element;

/// Elements in the packed buffer begin at multiples of it.
constexpr std::size_t kLine = 64;
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct Limits {
  explicit Limits(const pinion_gather_costs& costs)
      : elements(costs.max_elements),
        request_bytes(costs.max_request_bytes ? costs.max_request_bytes : kUnlimited),
        element_bytes(
            std::min(costs.max_element_bytes ? costs.max_element_bytes : kUnlimited, request_bytes)) {}
  std::size_t elements, request_bytes, element_bytes;
};

// ---- runs: neighbours joined, and cut where an element may not be so long ----

/// Of a run, the field `request` holds marks until the elements are laid out, and `pieces` is 0 where it was
/// cut: such a run is never copied.
constexpr std::size_t kPack = 1;              ///< chosen
constexpr std::size_t kPlaceAfterPacked = 2;  ///< the cheapest way to this run in place: the last one packed
constexpr std::size_t kPackAfterPacked = 4;   ///< likewise to this run packed

/// Of all runs.
struct Joined {
  std::size_t runs = 0, pieces = 0, bytes = 0;
  std::size_t most_pieces = 0, most_bytes = 0;  ///< of one
  bool cut = false;                             ///< one of them was
};

Joined join(std::span<const pinion_range> pieces, std::size_t most, std::span<Element> runs) {
  Joined all;
  std::size_t& count = all.runs;
  for (std::size_t i = 0; i < pieces.size();) {
    if (pieces[i].bytes == 0) {
      ++i;
      continue;
    }
    const auto* const begin = static_cast<const char*>(pieces[i].address);
    std::size_t bytes = pieces[i].bytes;
    std::size_t next = i + 1;
    for (; next < pieces.size(); ++next) {
      if (pieces[next].bytes > 0 && pieces[next].address != begin + bytes) break;
      bytes += pieces[next].bytes;
    }
    const std::size_t cuts = bytes <= most ? 1 : (bytes - 1) / most + 1;
    for (std::size_t cut = 0; cut < cuts && count + cut < runs.size(); ++cut) {
      const std::size_t at = cut * most;
      runs[count + cut] = {begin + at, std::min(most, bytes - at), i, cuts == 1 ? next - i : 0, 0};
    }
    count += cuts;
    all.cut = all.cut || cuts > 1;
    all.pieces += next - i;
    all.bytes += bytes;
    all.most_pieces = std::max(all.most_pieces, next - i);
    all.most_bytes = std::max(all.most_bytes, bytes);
    i = next;
  }
  return all;
}

// ---- elements and requests ----

/// Of a request of so many elements, beyond one of one: by straight lines between the measured powers of two.
double elements_ns(const pinion_gather_costs& costs, std::size_t elements) {
  constexpr std::size_t kPoints = std::size(decltype(costs.elements_ns){});
  if (elements < 2) return 0;
  const std::size_t point = std::min<std::size_t>(std::bit_width(elements) - 1, kPoints - 1);
  const double low = point > 0 ? costs.elements_ns[point - 1] : 0, high = costs.elements_ns[point];
  const auto begin = static_cast<double>(std::size_t{1} << point);
  return low + (high - low) * (static_cast<double>(elements) - begin) / begin;
}

double copy_ns(const pinion_gather_costs& costs, std::size_t pieces, std::size_t bytes) {
  return static_cast<double>(pieces) * costs.copied_piece_ns +
         static_cast<double>(bytes) * costs.copied_byte_ns;
}

/// Lays out runs one after another, as the device will get them.
class Layout {
 public:
  Layout(const pinion_gather_costs& costs, std::size_t room) : costs_(costs), limits_(costs), room_(room) {}

  struct Place {
    bool packed;
    bool opens;      ///< an element of its own, or the first of one
    std::size_t at;  ///< in the packed buffer
  };
  /// A run that is to be packed stays in place where the buffer is full.
  Place place(const Element& run, bool pack) {
    pack &= run.pieces > 0;
    const bool joins = pack && in_packed_ && run.bytes <= limits_.element_bytes - element_bytes_ &&
                       run.bytes <= limits_.request_bytes - request_bytes_;
    const std::size_t at = joins ? used_ : (used_ + kLine - 1) / kLine * kLine;
    const bool packed = pack && at <= room_ && run.bytes <= room_ - at;
    const bool opens = !(packed && joins);
    if (opens) open_element(run.bytes);
    element_bytes_ += run.bytes;
    request_bytes_ += run.bytes;
    if (packed) {
      used_ = at + run.bytes;
      copied_ns_ += copy_ns(costs_, run.pieces, run.bytes);
    }
    in_packed_ = packed;
    return {packed, opens, at};
  }
  std::size_t request() const { return requests_ - 1; }

  double ns() const { return ended_ns_ + elements_ns(costs_, in_request_) + copied_ns_; }

 private:
  void open_element(std::size_t bytes) {
    if (requests_ == 0 || in_request_ == limits_.elements || bytes > limits_.request_bytes - request_bytes_) {
      ended_ns_ += elements_ns(costs_, in_request_) + costs_.request_ns;
      ++requests_;
      in_request_ = 0;
      request_bytes_ = 0;
    }
    ++in_request_;
    element_bytes_ = 0;
  }

  const pinion_gather_costs& costs_;
  const Limits limits_;
  const std::size_t room_;
  std::size_t requests_ = 0;
  std::size_t in_request_ = 0, request_bytes_ = 0;  ///< elements and bytes of the last one
  bool in_packed_ = false;                          ///< the last element is
  std::size_t element_bytes_ = 0;
  std::size_t used_ = 0;  ///< of the packed buffer
  double ended_ns_ = 0;   ///< requests, and the elements of those before the last
  double copied_ns_ = 0;
};

// ---- the choice ----

/// A further one, of lists of so many runs: the mean of full requests.
double mean_element_ns(const pinion_gather_costs& costs, std::size_t runs) {
  const bool one_request = costs.max_elements >= runs;
  const std::size_t most = one_request ? runs : costs.max_elements;
  return (elements_ns(costs, most) + (one_request ? 0 : costs.request_ns)) /
         static_cast<double>(one_request ? most - 1 : most);
}

/// Short of all: no run costs more to copy than an element, and all of them together fit in one element.
/// Whether it is cheapest to copy them all, which needs no search.
bool packs_all(const pinion_gather_costs& costs, const Joined& all, std::size_t room) {
  const Limits limits(costs);
  if (all.cut || all.bytes > std::min(room, limits.element_bytes)) return false;
  if (copy_ns(costs, all.most_pieces, all.most_bytes) > mean_element_ns(costs, all.runs)) return false;
  const std::size_t full = (all.runs - 1) / limits.elements, rest = all.runs - full * limits.elements;
  const double in_place = static_cast<double>(full) * (elements_ns(costs, limits.elements) + costs.request_ns) +
                          elements_ns(costs, rest);
  return copy_ns(costs, all.pieces, all.bytes) < in_place;
}

/// Marks the runs whose packing saves more elements than it costs copying: the shortest path through two
/// states, the last run in place or packed. Returns how many it marks.
std::size_t mark_cheapest(const pinion_gather_costs& costs, std::span<Element> runs) {
  const double element_ns = mean_element_ns(costs, runs.size());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double placed = 0, packed = kNever;
  for (Element& run : runs) {
    const double before = std::min(placed, packed);
    const bool after_packed = packed < placed;
    // A new packed element follows a run in place: two packed ones in a row would be one.
    const bool extends = packed <= placed + element_ns;
    const double copy = run.pieces > 0 ? copy_ns(costs, run.pieces, run.bytes) : kNever;
    run.request = (after_packed ? kPlaceAfterPacked : 0) | (extends ? kPackAfterPacked : 0);
    packed = copy + (extends ? packed : placed + element_ns);
    placed = before + element_ns;
  }
  bool pack = packed < placed;
  std::size_t marked = 0;
  for (std::size_t i = runs.size(); i-- > 0;) {
    const std::size_t marks = runs[i].request;
    runs[i].request = pack ? kPack : 0;
    marked += pack;
    pack = (marks & (pack ? kPackAfterPacked : kPlaceAfterPacked)) != 0;
  }
  return marked;
}

template <class Chosen>
double ns_of(const pinion_gather_costs& costs, std::size_t room, std::span<const Element> runs,
             Chosen&& chosen) {
  Layout layout(costs, room);
  for (const Element& run : runs) layout.place(run, chosen(run));
  return layout.ns();
}

/// Leaves kPack in the runs to be copied. No dearer than all in place, or all packed.
void choose(const pinion_gather_costs& costs, std::size_t room, std::span<Element> runs) {
  const std::size_t marked = mark_cheapest(costs, runs);
  const double mixed = ns_of(costs, room, runs, [](const Element& run) { return run.request == kPack; });
  const double in_place =
      marked == 0 ? mixed : ns_of(costs, room, runs, [](const Element&) { return false; });
  const double packed =
      marked == runs.size() ? mixed : ns_of(costs, room, runs, [](const Element&) { return true; });
  if (mixed < in_place && mixed <= packed) return;
  for (Element& run : runs) run.request = packed < in_place ? kPack : 0;
}

/// The part of the buffer from the good offset on, where it has room for all that may be copied.
std::span<char> from_good_offset(const pinion_gather_costs& costs, std::span<char> packed,
                                 std::span<const Element> runs, const Joined& all) {
  const std::size_t page = page_size();
  const std::size_t skip = (costs.packed_offset - reinterpret_cast<Address>(packed.data())) & (page - 1);
  if (skip >= packed.size()) return packed;
  std::size_t copied = all.bytes;
  for (std::size_t i = 0; all.cut && i < runs.size(); ++i)
    if (runs[i].pieces == 0) copied -= runs[i].bytes;
  return copied <= packed.size() - skip ? packed.subspan(skip) : packed;
}

/// Runs become elements, in their own memory: no run lies behind its element.
std::size_t lay_out(const pinion_gather_costs& costs, std::span<char> packed, std::span<Element> elements) {
  Layout layout(costs, packed.size());
  std::size_t count = 0;
  for (const Element run : elements) {
    const Layout::Place place = layout.place(run, run.request == kPack);
    if (!place.opens) {
      Element& last = elements[count - 1];
      last.bytes += run.bytes;
      last.pieces = run.first_piece + run.pieces - last.first_piece;
      continue;
    }
    elements[count++] = place.packed ? Element{packed.data() + place.at, run.bytes, run.first_piece,
                                               run.pieces, layout.request()}
                                     : Element{run.address, run.bytes, run.first_piece, 0, layout.request()};
  }
  return count;
}

}  // namespace

std::size_t plan_gather(const pinion_gather_costs& costs, std::span<const pinion_range> pieces,
                        std::span<char> packed, std::span<pinion_gather_element> elements) {
  const Joined all = join(pieces, Limits(costs).element_bytes, elements);
  if (all.runs > elements.size()) return all.runs;
  const auto runs = elements.first(all.runs);
  if (!packed.empty()) packed = from_good_offset(costs, packed, runs, all);
  if (all.runs > 1 && !packed.empty()) {
    if (packs_all(costs, all, packed.size())) {
      const Element& last = runs.back();
      const std::size_t first_piece = runs.front().first_piece;
      runs.front() = {packed.data(), all.bytes, first_piece, last.first_piece + last.pieces - first_piece, 0};
      return 1;
    }
    choose(costs, packed.size(), runs);
  }
  return lay_out(costs, packed, runs);
}

namespace {

template <class Copy>
void each_copied(const pinion_range* pieces, std::span<const Element> elements, Copy&& copy) {
  for (const Element& element : elements) {
    auto* packed = static_cast<char*>(const_cast<void*>(element.address));
    for (std::size_t i = 0; i < element.pieces; ++i) {
      const pinion_range& piece = pieces[element.first_piece + i];
      if (piece.bytes > 0) copy(packed, static_cast<char*>(const_cast<void*>(piece.address)), piece.bytes);
      packed += piece.bytes;
    }
  }
}

}  // namespace

void pack_gathered(const pinion_range* pieces, std::span<const pinion_gather_element> elements) {
  each_copied(pieces, elements,
              [](char* packed, const char* piece, std::size_t bytes) { std::memcpy(packed, piece, bytes); });
}

void unpack_gathered(const pinion_range* pieces, std::span<const pinion_gather_element> elements) {
  each_copied(pieces, elements,
              [](const char* packed, char* piece, std::size_t bytes) { std::memcpy(piece, packed, bytes); });
}

}  // namespace pinion
