// The subjects of `pinion bench acquire`: Pinion's C API, and caches beside it, each over the same ranges by
// the same threads, with driver calls that do nothing. Each measurement has a process of its own, whose
// engine or cache ends with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/peer_caches.h"
#include "bench/ranges.h"

namespace pinion::cli {

/// The ranges, and which of them each thread asks for in turn.
struct AcquireWork {
  const std::vector<Range>& ranges;
  std::vector<std::vector<std::uint32_t>> orders;  ///< by thread
};

/// Returns what `measure` returns in a child process. Throws the child's Failure.
double measured_apart(const std::function<double()>& measure);

/// ns of an acquire and its release under a retention, or with a log kept in a directory that goes.
double c_api_ns(const AcquireWork& work, const std::string& retention, bool log);
/// Opens another library's cache, for several threads or one; null, and a reason, where it is absent.
using OpenPeer = std::function<std::unique_ptr<PeerCache>(bool threads, std::string& reason)>;
/// Whether it is there; else the reason.
bool has_peer(const OpenPeer& open, std::string& reason);
double get_and_put_ns(const OpenPeer& open, const AcquireWork& work);
/// The look-up of a range in a hash map that no thread changes.
double hash_ns(const AcquireWork& work);

}  // namespace pinion::cli
