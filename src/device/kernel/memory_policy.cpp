#include "device/kernel/memory_policy.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "monitor/own_process.h"
#include "monitor/system_call.h"

namespace pinion {

namespace {

// These are modes of <linux/mempolicy.h>, whose flags the mask takes away.
constexpr int kDefault = 0, kPreferred = 1, kLocal = 4;
constexpr int kModeMask = 0xff;

}  // namespace

unsigned memory_nodes() {
  // "0", "0-1", "0,2-3"
  KernelText text("/sys/devices/system/node/has_memory");
  std::string list;
  if (!text.line(list)) return 1;
  unsigned count = 0;
  for (std::size_t at = 0; at < list.size();) {
    unsigned first = 0, last = 0;
    const int read = std::sscanf(list.c_str() + at, "%u-%u", &first, &last);
    if (read < 1) break;
    count += read == 2 && last >= first ? last - first + 1 : 1;
    const std::size_t comma = list.find(',', at);
    at = comma == std::string::npos ? list.size() : comma + 1;
  }
  return count > 0 ? count : 1;
}

MemoryPolicy MemoryPolicy::of_this_thread() {
  MemoryPolicy policy;
  if (memory_nodes() < 2) return policy;
  int mode = 0;
  if (is_error(raw_system_call(SYS_get_mempolicy,
                               arguments_of(&mode, policy.nodes_.data(), kMostNodes + 1, 0L, 0L))))
    return {};
  policy.mode_ = mode;
  if ((mode & kModeMask) != kDefault && (mode & kModeMask) != kLocal) return policy;
  unsigned cpu = 0, node = 0;
  if (is_error(raw_system_call(SYS_getcpu, arguments_of(&cpu, &node, 0L))) || node >= kMostNodes) return {};
  policy.prefer(node);
  return policy;
}

void MemoryPolicy::prefer(unsigned node) {
  mode_ = kPreferred;
  nodes_ = {};
  nodes_[node / kWordBits] = 1UL << (node % kWordBits);
}

void MemoryPolicy::apply() const {
  if (changes_nothing()) return;
  raw_system_call(SYS_set_mempolicy, arguments_of(mode_, nodes_.data(), kMostNodes + 1));
}

void prefer_node(Range pages, int node) {
  int mode = kDefault;
  if (node < 0 || static_cast<std::size_t>(node) >= MemoryPolicy::kMostNodes ||
      is_error(raw_system_call(SYS_get_mempolicy, arguments_of(&mode, 0L, 0L, 0L, 0L))) || mode != kDefault)
    return;
  MemoryPolicy policy;
  policy.prefer(static_cast<unsigned>(node));
  // A node that is not there, or not the process's to use, is refused.
  raw_system_call(SYS_mbind, arguments_of(pages.begin, pages.bytes(), policy.mode_, policy.nodes_.data(),
                                          MemoryPolicy::kMostNodes + 1, 0L));
}

}  // namespace pinion
