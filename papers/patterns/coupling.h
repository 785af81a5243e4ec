// Knows who waits for whom among the ranks of a pattern: each message of a rank has the one of its peer that
// it needs. Values; a job's are made once and then only read.
//
// Between two ranks messages match in their order, as MPI matches those of one tag. A message and its match
// lie in the same part of the two programs, and in the same turn of their main loops.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/peers.h"

namespace pinion::simulate {

/// A message as its rank's program has it.
struct RankMessage {
  enum class Kind : std::uint8_t {
    sends,          ///< waits until its peer receives
    sends_at_once,  ///< waits for nobody
    receives,       ///< waits until its peer sends
    collective,     ///< waits for all of its group
  };
  Kind kind;
  std::uint32_t with;  ///< the peer's rank; of a collective: the group
};

struct RankMessages {
  std::array<std::vector<RankMessage>, 3> parts;  ///< before the main loop, in a turn of it, after it
  std::vector<std::vector<int>> groups;           ///< of ranks
};

/// The message of that number in a part of `rank`'s program.
struct MessageOf {
  std::uint32_t rank, number;
};

class Coupling final : public Coupled {
 public:
  static constexpr std::uint32_t kNobody = UINT32_MAX, kAll = UINT32_MAX - 1;
  static constexpr std::size_t kParts = 3;

  explicit Coupling(std::vector<RankMessages> ranks);

  void mark(const RankKinds& kinds, std::vector<std::uint64_t>& marks) const override;
  std::unique_ptr<Meetings> meetings(const Workload& workload, const RankKinds& kinds,
                                     std::vector<std::uint32_t> simulated) const override;
  /// Returns what each message of that part of a rank's program needs. With rank kNobody it needs none, and
  /// with kAll those of a collective: number `number` of collective().
  const std::vector<MessageOf>& needed(std::size_t part, std::uint32_t rank) const {
    return needed_[part][rank];
  }
  const std::vector<MessageOf>& collective(std::uint32_t number) const { return collectives_[number]; }
  /// Messages without a match: a fault of the pattern. They need none.
  std::uint64_t unmatched() const { return unmatched_; }

 private:
  void match(std::size_t part, const std::vector<RankMessages>& ranks);
  void gather(std::size_t part, const std::vector<RankMessages>& ranks);
  /// The kinds that meet in each collective, however many ranks of each.
  std::vector<std::uint64_t> marks_of_collectives(const RankKinds& kinds) const;

  std::array<std::vector<std::vector<MessageOf>>, kParts> needed_;  ///< by part, rank and message
  std::vector<std::vector<MessageOf>> collectives_;
  std::uint64_t unmatched_ = 0;
};

}  // namespace pinion::simulate
