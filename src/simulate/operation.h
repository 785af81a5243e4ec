// The operations of a simulated thread: values, and their source.
#pragma once

#include <cstdint>

#include "base/access.h"
#include "base/call_kind.h"
#include "base/clock.h"
#include "base/range.h"

namespace pinion::simulate {

constexpr Duration kUntilReleased = -1;

/// Ranges of several domains are kept apart above all addresses that a process can have.
constexpr unsigned kDomainShift = 58;
inline Range in_domain(Range range, unsigned domain) {
  const Address base = Address{domain} << kDomainShift;
  return {range.begin + base, range.end + base};
}
inline unsigned domain_of(Range range) { return static_cast<unsigned>(range.begin >> kDomainShift); }

struct Operation {
  enum class Kind : std::uint8_t {
    acquire,       ///< a transfer needs `range`
    release,       ///< the transfer of `slot` is complete
    memory_event,  ///< `range` is unmapped
    pause,         ///< nothing but the time before it
  };
  Kind kind = Kind::acquire;
  CallKind call = CallKind::send;
  Access access = Access::read;
  /// Its transfer begins when the peers have begun their parts of the thread's messages under way.
  bool meets = false;
  std::uint16_t messages = 0;  ///< begun with an acquire or a pause: those that peers wait for
  std::uint32_t slot = 0;      ///< of an acquire, and of its release; a small number of the thread's own
  std::uint64_t site = 0;
  Range range{};
  /// The page size of an acquire's memory: the system's times 2^page_order.
  std::uint8_t page_order = 0;
  Duration compute = 0;   ///< by the thread, since its previous operation was done
  Duration transfer = 0;  ///< in the network, since then: noise of the computation does not touch it
  /// The length of an acquire's lease, independent of the thread (except under a retention that decides on
  /// threads: there the release is the thread's work).
  Duration lasts = kUntilReleased;
  Time not_before = 0;  ///< absolute

  bool operator==(const Operation&) const = default;
};

/// The operations of one thread. Equal scripts give equal operations.
class Script {
 public:
  virtual ~Script() = default;
  /// False: the thread has nothing more to do (for now).
  virtual bool next(Operation& operation) = 0;
};

}  // namespace pinion::simulate
