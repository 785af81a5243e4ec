// The size of a job's buckets. Each process proposes one that suits its memory; the smallest becomes the
// job's. Ordinary code, while a process joins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "firehose/bucket.h"
#include "pinion/firehose.h"

namespace pinion::firehose {

/// M: the bytes of this process that its peers may keep registered.
std::uint64_t memory_for_peers(const pinion_firehose_options& options);

/// A power of two from a page to 1 GiB.
bool is_bucket(std::uint64_t bytes);
/// 64 KiB, or a hugepage; less where M would not hold four for each peer: so many move at a time.
std::size_t suitable_bucket(std::uint64_t memory, Peer processes, bool in_hugepages);

/// The bucket that the options name, or a suitable one: for hugepages where all segments lie in some.
std::uint64_t proposed_bucket(const pinion_firehose_options& options, Peer processes);

/// EBADMSG: a proposal is no size of buckets.
Error agreed_bucket(std::span<const std::uint64_t> proposals, std::uint64_t& bucket);

}  // namespace pinion::firehose
