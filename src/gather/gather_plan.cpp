#include "gather/gather_plan.h"

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

/// The field `request` of a run holds marks until the elements are laid out, and `pieces` is 0 where it was
/// cut: such a run is never copied.
constexpr std::size_t kPack = 1;              ///< chosen
constexpr std::size_t kPlaceAfterPacked = 2;  ///< the cheapest way to this run in place: the last one packed
constexpr std::size_t kPackAfterPacked = 4;   ///< likewise to this run packed

/// The sums over all runs.
struct Joined {
  std::size_t runs = 0;
  std::size_t first_piece = 0, pieces = 0;  ///< from the first one that is not empty
  std::size_t bytes = 0;
  std::size_t cut_bytes = 0;              ///< of runs that are cut
  std::size_t most_bytes = 0;             ///< of one
  const pinion_range* refused = nullptr;  ///< no memory can be there
};

/// Hands each run to `run`: its pieces and its bytes. Empty pieces belong to the run before them.
template <class Run>
void each_run(std::span<const pinion_range> pieces, Run&& run) {
  const pinion_range* piece = pieces.data();
  const pinion_range* const end = piece + pieces.size();
  while (piece != end && piece->bytes == 0) ++piece;
  while (piece != end) {
    const pinion_range* const first = piece;
    const auto* const begin = static_cast<const char*>(first->address);
    std::size_t bytes = first->bytes;
    while (++piece != end && (piece->address == begin + bytes || piece->bytes == 0)) bytes += piece->bytes;
    run(first, piece, bytes);
  }
}

/// Runs that are cut are as many as their cuts.
void count_cuts(std::span<const pinion_range> pieces, std::size_t most, Joined& all) {
  each_run(pieces, [&](const pinion_range*, const pinion_range*, std::size_t bytes) {
    if (bytes <= most) return;
    all.runs += (bytes - 1) / most;
    all.cut_bytes += bytes;
  });
}

/// Lays out pieces that are a run each, as most are. False: some are empty, neighbours, or where no memory
/// can be. The fewest instructions a piece: they are all that small lists take.
bool survey_plain(std::span<const pinion_range> pieces, Joined& all) {
  std::size_t bytes = 0, most = 0;
  Address previous_end = 0;
  Address marks = 0;  // beyond kAddressEnd where one of the values is: 0 - 1 is too
  bool neighbours = false;
  for (const pinion_range& piece : pieces) {
    const auto begin = reinterpret_cast<Address>(piece.address);
    const Address end = begin + piece.bytes;
    marks |= (begin - 1) | (piece.bytes - 1) | (end - 1);
    neighbours |= begin == previous_end;
    bytes += piece.bytes;
    most = std::max(most, piece.bytes);
    previous_end = end;
  }
  static_assert(std::has_single_bit(kAddressEnd));
  all = {.runs = pieces.size(), .pieces = pieces.size(), .bytes = bytes, .most_bytes = most};
  return marks < kAddressEnd && !neighbours;
}

/// One pass that stores nothing.
Joined survey(std::span<const pinion_range> pieces) {
  Joined all;
  std::size_t run_bytes = 0;
  const char* end = nullptr;
  for (const pinion_range& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (!is_addressable(reinterpret_cast<Address>(piece.address), piece.bytes)) {
      all.refused = &piece;
      return all;
    }
    if (piece.address != end) {
      ++all.runs;
      all.most_bytes = std::max(all.most_bytes, run_bytes);
      run_bytes = 0;
    }
    run_bytes += piece.bytes;
    all.bytes += piece.bytes;
    end = static_cast<const char*>(piece.address) + piece.bytes;
  }
  all.most_bytes = std::max(all.most_bytes, run_bytes);
  while (all.first_piece < pieces.size() && pieces[all.first_piece].bytes == 0) ++all.first_piece;
  all.pieces = pieces.size() - all.first_piece;
  return all;
}

Joined joined(std::span<const pinion_range> pieces, std::size_t most) {
  Joined all;
  if (!survey_plain(pieces, all)) all = survey(pieces);
  if (all.most_bytes > most) count_cuts(pieces, most, all);
  return all;
}

void join(std::span<const pinion_range> pieces, std::size_t most, std::span<Element> runs) {
  auto out = runs.begin();
  each_run(pieces, [&](const pinion_range* first, const pinion_range* next, std::size_t bytes) {
    const auto* const begin = static_cast<const char*>(first->address);
    const auto whole = bytes <= most ? static_cast<std::size_t>(next - first) : 0;
    for (std::size_t at = 0; at < bytes; at += out[-1].bytes)
      *out++ = {begin + at, std::min(most, bytes - at), static_cast<std::size_t>(first - pieces.data()),
                whole, 0};
  });
}

// ---- elements and requests ----

/// The cost of a request of so many elements, beyond one of one: straight lines between the measured powers
/// of two.
double elements_ns(const pinion_gather_costs& costs, std::size_t elements) {
  constexpr std::size_t kPoints = std::size(decltype(costs.elements_ns){});
  if (elements < 2) return 0;
  const std::size_t point = std::min<std::size_t>(std::bit_width(elements) - 1, kPoints - 1);
  const double low = point > 0 ? costs.elements_ns[point - 1] : 0, high = costs.elements_ns[point];
  const auto begin = static_cast<double>(std::size_t{1} << point);
  return low + (high - low) * (static_cast<double>(elements) - begin) / begin;
}

/// A request of one element, posted after another one. By doubles, as the bytes of a mean one come.
double request_ns(const pinion_gather_costs& costs, double bytes) {
  return costs.request_ns +
         costs.large_request_ns * std::min(1.0, bytes / static_cast<double>(kLargeRequest));
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

  double ns() const { return ended_ns_ + open_request_ns() + copied_ns_; }

 private:
  double open_request_ns() const {
    if (requests_ == 0) return 0;
    return request_ns(costs_, static_cast<double>(request_bytes_)) + elements_ns(costs_, in_request_);
  }
  void open_element(std::size_t bytes) {
    if (requests_ == 0 || in_request_ == limits_.elements || bytes > limits_.request_bytes - request_bytes_) {
      ended_ns_ += open_request_ns();
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
  double ended_ns_ = 0;   ///< requests before the last
  double copied_ns_ = 0;
};

// ---- the choice ----

/// All runs in place, by the mean of their bytes: a further element, and all requests.
struct InPlace {
  double element_ns, all_ns;
};

InPlace in_place(const pinion_gather_costs& costs, const Joined& all) {
  const double run_bytes = static_cast<double>(all.bytes) / static_cast<double>(all.runs);
  const auto request_of = [&](std::size_t elements) {
    return elements_ns(costs, elements) + request_ns(costs, run_bytes * static_cast<double>(elements));
  };
  if (costs.max_elements >= all.runs)
    return {elements_ns(costs, all.runs) / static_cast<double>(all.runs - 1), request_of(all.runs)};
  const double request = request_of(costs.max_elements);
  const std::size_t full = all.runs / costs.max_elements, rest = all.runs % costs.max_elements;
  return {request / static_cast<double>(costs.max_elements),
          static_cast<double>(full) * request + (rest > 0 ? request_of(rest) : 0)};
}

/// Whether it is cheapest to copy all, which needs no search: no run costs more to copy than an element, and
/// all of them together fit in one element, and cost less.
bool packs_all(const pinion_gather_costs& costs, const Joined& all, std::size_t room) {
  if (all.cut_bytes > 0 || all.bytes > std::min(room, Limits(costs).element_bytes)) return false;
  const std::size_t most_pieces = all.pieces - all.runs + 1;  // of one run
  const double dearest = copy_ns(costs, most_pieces, all.most_bytes);
  // The elements of whole requests alone cost more: both hold.
  const std::size_t elements = std::min(all.runs, costs.max_elements);
  if (dearest * static_cast<double>(all.runs) <
      elements_ns(costs, elements) * static_cast<double>(all.runs / elements))
    return true;
  const InPlace placed = in_place(costs, all);
  return dearest <= placed.element_ns &&
         copy_ns(costs, all.pieces, all.bytes) + request_ns(costs, static_cast<double>(all.bytes)) <
             placed.all_ns;
}

/// Marks the runs whose packing saves more elements than it costs copying: the shortest path through two
/// states, the last run in place or packed. Returns how many it marks.
std::size_t mark_cheapest(const pinion_gather_costs& costs, double element_ns, std::span<Element> runs) {
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
void choose(const pinion_gather_costs& costs, double element_ns, std::size_t room, std::span<Element> runs) {
  const std::size_t marked = mark_cheapest(costs, element_ns, runs);
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
                                 std::size_t bytes) {
  const std::size_t page = page_size();
  const std::size_t skip = (costs.packed_offset - reinterpret_cast<Address>(packed.data())) & (page - 1);
  return skip < packed.size() && bytes <= packed.size() - skip ? packed.subspan(skip) : packed;
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

GatherPlan plan_gather(const pinion_gather_costs& costs, std::span<const pinion_range> pieces,
                       std::span<char> packed, std::span<pinion_gather_element> elements) {
  const std::size_t most = Limits(costs).element_bytes;
  const Joined all = joined(pieces, most);
  if (all.refused || all.runs > elements.size()) return {all.runs, all.refused};
  const auto runs = elements.first(all.runs);
  if (all.runs == 1 && all.most_bytes <= most) {
    const pinion_range& first = pieces[all.first_piece];
    runs.front() = {first.address, all.bytes, all.first_piece, 0, 0};
    return {1};
  }
  const bool chooses = all.runs > 1 && !packed.empty();
  if (chooses) {
    packed = from_good_offset(costs, packed, all.bytes - all.cut_bytes);
    if (packs_all(costs, all, packed.size())) {
      runs.front() = {packed.data(), all.bytes, all.first_piece, all.pieces, 0};
      return {1};
    }
  }
  join(pieces, most, runs);
  if (chooses) choose(costs, in_place(costs, all).element_ns, packed.size(), runs);
  return {lay_out(costs, packed, runs)};
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
