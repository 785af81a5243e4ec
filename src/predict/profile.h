// A learnt profile as bytes: what contexts led to, how long until reuse, how often buffers of a site are
// reused. Keys are hashes of names that mean the same in another run (call sites by module and offset,
// buffers by the site that used them first), so a profile of another program, or of an older build, is simply
// never asked. Readers trust nothing: whatever is not whole and of this version is an error. Values; any
// thread.
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
    double right;  ///< share of predictions by this context that will be right, as far as its run could tell
  };
  struct Reuse {
    std::uint64_t context;
    std::int64_t after_ns;
  };
  struct Site {
    std::uint64_t site;
    double uses, reused;
  };
  std::vector<Transition> transitions;
  std::vector<Reuse> reuses;
  std::vector<Site> sites;

  std::string to_bytes() const;
  /// On an error the profile is empty.
  Error from_bytes(const std::string& bytes);
};

}  // namespace pinion
