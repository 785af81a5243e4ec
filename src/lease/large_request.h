// The whole larger pages of a request's memory, for AcquireRequest::large. Any thread, outside of hooks.
#pragma once

#include "device/device.h"
#include "device/kernel/mapped_pages.h"
#include "placement/hugepage_heap.h"

namespace pinion {

/// Empty where the pages are of the system's size, and where a forked child would lack the rest of them: the
/// library refuses parts of hugepages then, as without Pinion (RDMAV_HUGEPAGES_SAFE). The heap copies the
/// blocks in its own hugepages for children.
inline LargeRange large_pages_to_register(const Device& device, Range pages) {
  const LargeRange large = mapped_pages().around(pages);
  if (large.empty() || !device.capabilities().hides_from_children) return large;
  return process_heap().owns(reinterpret_cast<const void*>(pages.begin)) ? large : LargeRange{};
}

}  // namespace pinion
