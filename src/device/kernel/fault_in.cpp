#include "device/kernel/fault_in.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "monitor/mapping_reader.h"
#include "monitor/system_call.h"

// Missing in the headers of kernels before 5.14.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace pinion {

namespace {

void* pointer(Address a) { return reinterpret_cast<void*>(a); }

Error not_mapped(Range range) {
  return Error::make(EFAULT, "memory %#zx-%#zx is not mapped (or not all of it)", range.begin, range.end);
}

bool is_mapped(Range range) {
  // MS_ASYNC only looks for holes.
  return msync(pointer(range.begin), range.bytes(), MS_ASYNC) == 0;
}

bool kernel_populates() {
  // No bytes: only the advice itself is checked.
  static const bool known = madvise(nullptr, 0, MADV_POPULATE_WRITE) == 0;
  return known;
}

/// The kernel answers alike where rights lack, and where it keeps the pages to itself.
Error not_accessible(Range range, bool for_writing) {
  bool has_rights = true;
  const bool listed = for_each_mapping(range, [&](const Mapping& mapping) {
    has_rights = has_rights && (mapping.protection & (for_writing ? PROT_WRITE : PROT_READ)) != 0;
  });
  if (listed && has_rights)
    return Error::make(EFAULT, "memory %#zx-%#zx is closed to devices (memfd_secret, or a driver's own)",
                       range.begin, range.end);
  return Error::make(EFAULT, "memory %#zx-%#zx is not %s (or not all of it)", range.begin, range.end,
                     for_writing ? "writable" : "readable");
}

/// A page could not be had in memory that the caller may access.
Error not_backed(Range range) {
  bool has_file = false;
  for_each_mapping(range, [&](const Mapping& mapping) { has_file = has_file || mapping.inode != 0; });
  return Error::make(EFAULT, "memory %#zx-%#zx %s (or not all of it), or is broken", range.begin, range.end,
                     has_file ? "lies beyond the end of its file" : "has guard pages (MADV_GUARD_INSTALL)");
}

Error populate(Range range, bool for_writing, StepBytes step_bytes) {
  const int advice = for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  for (Address at = range.begin; at < range.end;) {
    const Range step{at, std::min(at + page_ceil(step_bytes()), range.end)};
    // No event of memory: the hooks are passed by.
    const long result = raw_system_call(SYS_madvise, arguments_of(step.begin, step.bytes(), advice));
    if (result == 0) {
      at = step.end;
      continue;
    }
    switch (-result) {
      case EINTR:
      case EAGAIN:
        continue;
      case ENOMEM:
        if (!is_mapped(step)) return not_mapped(step);
        return Error::make(ENOMEM, "no memory for the pages of %#zx-%#zx", step.begin, step.end);
      case EINVAL:
        return not_accessible(step, for_writing);
      default:  // EFAULT, EHWPOISON
        return not_backed(step);
    }
  }
  return {};
}

constexpr auto long_steps = [] { return kFaultStep; };

/// One flag a page, as mincore() gives them: the common case, in a loop that the compiler vectorises.
bool all_present(const unsigned char* present, std::size_t pages) {
  unsigned char all = 1;
  for (std::size_t i = 0; i < pages; ++i) all &= present[i];
  return all != 0;
}

}  // namespace

Error fault_in(Range pages, bool for_writing) { return fault_in(pages, for_writing, long_steps); }

Error fault_in(Range pages, bool for_writing, StepBytes step_bytes) {
  constexpr std::size_t kBatch = 4096;
  unsigned char present[kBatch];
  const std::size_t page = page_size();
  for (Address at = pages.begin; at < pages.end;) {
    const Range batch{at, std::min(at + kBatch * page, pages.end)};
    while (mincore(pointer(batch.begin), batch.bytes(), present) != 0) {
      if (errno != EAGAIN) return not_mapped(batch);
    }
    if (all_present(present, batch.pages())) {
      at = batch.end;
      continue;
    }
    const auto absent = [&](Address a) { return (present[(a - batch.begin) / page] & 1) == 0; };
    while (at < batch.end) {
      Range run{at, at};
      while (run.end < batch.end && absent(run.end)) run.end += page;
      if (!run.empty() && kernel_populates()) {
        if (Error error = populate(run, for_writing, step_bytes)) return error;
      }
      at = run.end;
      while (at < batch.end && !absent(at)) at += page;
    }
  }
  return {};
}

Error check_access(Range pages, bool for_writing) {
  if (!kernel_populates()) return is_mapped(pages) ? Error{} : not_mapped(pages);
  return populate(pages, for_writing, long_steps);
}

}  // namespace pinion
