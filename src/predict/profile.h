// A learnt profile as bytes: the successors of contexts and the times until reuse. Keys are hashes of names
// that mean the same in another run: call sites by module and offset, buffers by the site that used them
// first. So the keys of another program, or of an older build, never match. Readers trust nothing: a profile
// that is cut, damaged or of another version is an error. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace pinion {

struct Profile {
  struct Transition {
    std::uint64_t context, site, buffer;  ///< `site` and `buffer` of the event that follows
    std::int64_t after_ns;
    double right;  ///< share of predictions by this context that will be right, as estimated in its run
  };
  struct Reuse {
    std::uint64_t context;
    std::int64_t after_ns;
  };
  std::vector<Transition> transitions;
  std::vector<Reuse> reuses;

  /// Returns whether the bytes begin as those of every version do.
  static bool has_mark(const std::string& bytes);
  std::string to_bytes() const;
  /// On an error the profile is empty.
  Error from_bytes(const std::string& bytes);
};

}  // namespace pinion
