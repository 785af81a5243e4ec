#include "papers/patterns/pattern.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "papers/patterns/patterns.h"

namespace pinion::simulate {

Address ProgramBuilder::array(std::uint64_t bytes) {
  const Address begin = next_array_;
  next_array_ = page_ceil(begin + bytes) + 16 * page_size();
  return begin;
}

void ProgramBuilder::add(Operation operation) {
  operation.compute = compute_;
  operation.transfer = transfer_;
  compute_ = transfer_ = 0;
  part_->push_back(operation);
}

void ProgramBuilder::lease(CallKind call, Address address, std::uint64_t bytes, std::uint64_t site) {
  Operation operation;
  operation.call = call;
  operation.access =
      call == CallKind::receive || call == CallKind::receive_nonblocking ? Access::write : Access::read;
  operation.slot = leases_++;
  operation.site = site;
  operation.range = {address, address + bytes};
  add(operation);
}

void ProgramBuilder::begin(RankMessage message) {
  const bool with_the_last =
      !part_->empty() && compute_ == 0 && transfer_ == 0 &&
      (part_->back().kind == Operation::Kind::acquire || part_->back().kind == Operation::Kind::pause);
  if (!with_the_last) add({.kind = Operation::Kind::pause});
  ++part_->back().messages;
  const auto part = part_ == &program_.before ? 0u : part_ == &program_.turn ? 1u : 2u;
  coupling_.parts[part].push_back(message);
  under_way_ = true;
}

std::uint32_t ProgramBuilder::group(const std::vector<int>& peers) {
  std::vector<std::vector<int>>& groups = coupling_.groups;
  const auto found = std::find(groups.begin(), groups.end(), peers);
  const auto number = static_cast<std::uint32_t>(found - groups.begin());
  if (found == groups.end()) groups.push_back(peers);
  return number;
}

void ProgramBuilder::post(CallKind call, Address address, std::uint64_t bytes, int peer, std::uint64_t site) {
  const bool receives = call == CallKind::receive || call == CallKind::receive_nonblocking;
  messages_.push_back({part_ == &program_.turn ? Message::Part::turn : Message::Part::before, call, address,
                       bytes, peer, site});
  if (off_node(peer)) {
    (receives ? received_ : sent_) += bytes;
    if (bytes >= machine_.threshold) lease(call, address, bytes, site);
  } else if (!receives) {
    copied_ += bytes;
  }
  if (peer >= ranks()) return;
  using Kind = RankMessage::Kind;
  const Kind sends = bytes < machine_.threshold ? Kind::sends_at_once : Kind::sends;
  begin({receives ? Kind::receives : sends, static_cast<std::uint32_t>(peer)});
}

void ProgramBuilder::wait() {
  transfer_ += machine_.latency +
               static_cast<Duration>(1e9 * (static_cast<double>(std::max(sent_, received_)) /
                                                machine_.network_bytes_per_second +
                                            static_cast<double>(copied_) / machine_.memory_bytes_per_second));
  sent_ = received_ = copied_ = 0;
  const bool meets = std::exchange(under_way_, false);
  if (meets && leases_ == 0) add({.kind = Operation::Kind::pause, .meets = true});
  for (std::uint32_t slot = 0; slot < leases_; ++slot) {
    Operation operation;
    operation.kind = Operation::Kind::release;
    operation.meets = meets && slot == 0;
    operation.slot = slot;
    add(operation);
  }
  leases_ = 0;
}

void ProgramBuilder::alltoall(Address send, Address receive, std::uint64_t piece,
                              const std::vector<int>& peers, std::uint64_t site) {
  const auto part = part_ == &program_.turn ? Message::Part::turn : Message::Part::before;
  const std::uint64_t whole = piece * peers.size();
  messages_.push_back({part, CallKind::alltoall, send, whole, -1, site});
  messages_.push_back({part, CallKind::alltoall, receive, whole, -1, site});
  const auto remote = static_cast<std::uint64_t>(
      std::count_if(peers.begin(), peers.end(), [&](int peer) { return off_node(peer); }));
  sent_ += remote * piece;
  received_ += remote * piece;
  copied_ += whole - remote * piece;
  // The pieces for others beside each other are one buffer. With a node of its own, the rank's own piece
  // belongs to it: Pinion leases the buffer of the call as it is passed.
  const bool alone = remote + 1 == peers.size();
  for (std::size_t i = 0; i < peers.size() && remote > 0;) {
    std::size_t end = i;
    while (end < peers.size() && (alone || off_node(peers[end]))) ++end;
    if (end > i && (end - i) * piece >= machine_.threshold) {
      lease(CallKind::alltoall, send + i * piece, (end - i) * piece, site);
      lease(CallKind::alltoall, receive + i * piece, (end - i) * piece, site);
      part_->back().access = Access::write;
    }
    i = end + (end == i);
  }
  begin({RankMessage::Kind::collective, group(peers)});
  wait();
}

void ProgramBuilder::unmap(Range range) {
  Operation operation;
  operation.kind = Operation::Kind::memory_event;
  operation.range = range.to_pages();
  add(operation);
}

void ProgramBuilder::begin_turn() {
  // Time before the loop is spent once.
  if (compute_ > 0 || transfer_ > 0) add({.kind = Operation::Kind::pause});
  part_ = &program_.turn;
}

void ProgramBuilder::end_turn(std::uint64_t turns) {
  // The rest of the turn's time belongs to it.
  add({.kind = Operation::Kind::pause});
  program_.turns = turns;
  part_ = &program_.after;
}

Program ProgramBuilder::finish() {
  add({.kind = Operation::Kind::pause});
  return {{std::move(program_)}};
}

// ---- names ----

namespace {

struct Entry {
  PatternName name;
  Error (*make)(const std::string& scale, const std::string& ranks, Pattern& pattern);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = {
      {{"bt", "NAS BT: block tridiagonal solver, multi-partition; a square number of ranks"}, make_bt},
      {{"sp", "NAS SP: scalar pentadiagonal solver, multi-partition; a square number of ranks"}, make_sp},
      {{"lu", "NAS LU: pipelined Gauss-Seidel, 2-D; a power of two ranks"}, make_lu},
      {{"cg", "NAS CG: conjugate gradient, 2-D; a power of two ranks"}, make_cg},
      {{"ft", "NAS FT: 3-D FFT by transposition, 1-D (a power of two ranks) or 2-D (ROWSxCOLUMNS)"}, make_ft},
      {{"mg", "NAS MG: multigrid V-cycle, 3-D; a power of two ranks"}, make_mg},
      {{"is", "NAS IS: integer bucket sort; a power of two ranks"}, make_is},
      {{"reuse", "the paper's Figure 1: three buffers of SIZE in turn, a second of computation after each"},
       make_reuse},
      {{"loop3", "three buffers of SIZE in turn, 5 ms of computation before each"}, make_loop3},
      {{"loop5", "five buffers of SIZE in turn, 5 ms of computation before each"}, make_loop5},
      {{"no-reuse", "reuse, but every message from memory that was never used before"}, make_no_reuse},
      {{"nested", "the paper's Figure 4: two inner loops, three turns each, a buffer of SIZE each"},
       make_nested},
      {{"warm-up", "ten turns with buffers and times of their own, then steady turns"}, make_warm_up},
      {{"regime-change", "half of the turns in one order and time, half in another"}, make_regime_change},
      {{"drift", "turns that take evenly longer, twice as long in the end"}, make_drift},
      {{"irregular", "eight buffers of SIZE in random order, at random times"}, make_irregular},
  };
  return list;
}

}  // namespace

std::vector<PatternName> pattern_names() {
  std::vector<PatternName> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

Error find_pattern(const std::string& text, Pattern& pattern) {
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos)
    return Error::make(EINVAL, "pattern '%s' is not of the form NAME:CLASS:RANKS", text.c_str());
  const std::string name = text.substr(0, first);
  pattern.name = text;
  std::string valid;
  for (const Entry& entry : entries()) {
    if (name == entry.name.name)
      return entry.make(text.substr(first + 1, second - first - 1), text.substr(second + 1), pattern);
    valid += (valid.empty() ? "" : ", ") + std::string(entry.name.name);
  }
  return Error::make(EINVAL, "unknown pattern '%s'; valid: %s", name.c_str(), valid.c_str());
}

// ---- common parts of the patterns ----

Error read_ranks(const std::string& text, const char* name, RanksRule rule, int& ranks) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  const bool number =
      failed == std::errc{} && end == text.data() + text.size() && ranks >= 1 && ranks <= 1 << 20;
  const auto valid = [&] {
    if (rule == RanksRule::power_of_two) return (ranks & (ranks - 1)) == 0;
    if (rule == RanksRule::square) return square_root(ranks) * square_root(ranks) == ranks;
    return true;
  };
  if (number && valid()) return {};
  const char* const wanted = rule == RanksRule::power_of_two ? "a power of two (1, 2, 4, 8, ...)"
                             : rule == RanksRule::square     ? "a square number (1, 4, 9, 16, ...)"
                                                             : "a whole number from 1 to 1048576";
  return Error::make(EINVAL, "pattern %s: '%s' ranks are not valid; needed: %s", name, text.c_str(), wanted);
}

int square_root(int n) {
  int root = 0;
  while ((root + 1) * (root + 1) <= n) ++root;
  return root;
}

int log2_of(int n) {
  int log = 0;
  while (n > 1) n /= 2, ++log;
  return log;
}

Error unknown_class(const char* name, const std::string& given, const std::string& valid) {
  return Error::make(EINVAL, "pattern %s: there is no class '%s'; valid: %s", name, given.c_str(),
                     valid.c_str());
}

}  // namespace pinion::simulate
