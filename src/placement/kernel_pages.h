// The kernel's pages for the heap: transparent hugepages, else base pages.
//
// The reserved pool (hugetlb) stays out: in its mappings MADV_DONTNEED of less than a hugepage succeeds and
// clears nothing, and guard pages are refused. Blocks of malloc must behave like private memory under any
// system call, also one that no hook sees. Owns nothing; callers as page_source.h has them.
#pragma once

#include "placement/page_source.h"

namespace pinion {

class KernelPages final : public PageSource {
 public:
  Pages map(std::size_t least, std::size_t wanted) override;
  bool discard(Range hugepages) override;
  bool offer(Range hugepages) override;
  void unmap(const Pages& pages) override;
  bool charges_untouched() const override;
  bool charge(Range hugepages) override;
  void* map_records(std::size_t bytes) override;
  void unmap_records(void* records, std::size_t bytes) override;
};

/// Maps private memory of zeros at a multiple of the hugepage, in transparent ones where the kernel gives
/// them. An empty range: there is none.
Pages map_private(std::size_t bytes);
/// Puts fresh memory in place of any mapping, by libc's function, so that the hooks of other libraries see it
/// too. False: refused.
bool map_over(Range range, int protection, int flags);
/// Gives the contents of private memory back to the kernel, by libc's function. False: refused.
bool discard_seen(Range range);
/// Looks whether the system gives transparent hugepages. The answer stays: the process may lose the right to
/// open files.
void look_for_transparent_pages();
/// Looks whether the system charges untouched memory (PageSource::charges_untouched()). The answer stays.
void look_at_overcommit(const char* file = "/proc/sys/vm/overcommit_memory");
/// Whether the range takes transparent hugepages at its first touch.
bool advise_hugepages(Range range);
/// Unmaps memory that the program never saw: no hook runs.
void unmap_unseen(Range range);
/// Puts `from`, which is unmapped there, in the place of `to`, of the same size.
bool move_unseen(Range from, Range to);
/// Does what mprotect does; no hook runs. False: refused.
bool protect_unseen(Range range, int protection);

/// Makes memory as fresh from mmap, but for contents and locks: rights, protection key, memory policy,
/// advice, and what children and dumps get. Children still lack it if `hidden`. False: refused.
bool make_plain_unseen(Range range, bool hidden);
/// Does what munlock does.
void unlock_unseen(Range range);
/// Makes the system calls of these on no memory, and those of a mutex of this room. The first later ones may
/// come behind a sandbox that the program has closed around the calls that it has seen.
void make_later_calls_unseen();

// ---- a child's copies; no hook runs ----

/// Copies memory of the program, also what it may not read just now. Pages that the kernel refuses are left
/// out.
void copy_unseen(Range from, Address to);
/// Takes the rights from the copy's pages that the program lacks in those of `from`. A longer copy has those
/// of the last page to its end. True: some lack rights now.
bool copy_rights_unseen(Range from, Range copy);
/// Puts the mappings in `from` in the place of `to`, of the same size, which is unmapped.
bool move_pieces_unseen(Range from, Range to);

// ---- addresses of the arena; no hook runs ----

/// Reserves addresses without memory, at a multiple of the hugepage; empty: there are none.
Range reserve_unseen(std::size_t bytes);
/// Reserves these addresses, if they are free.
bool reserve_unseen_at(Range range);
/// Puts addresses without memory in place of any mapping. False: refused.
bool empty_unseen(Range range);
/// Puts private memory of zeros on reserved addresses; sets the backing. False: refused.
bool commit_unseen(Pages& pages);
/// Decides whether children of fork lack the memory. False: refused.
bool hide_unseen(Range range, bool hidden);

/// Bytes of the ranges that lie in transparent hugepages now, by the kernel's own count. Reads
/// /proc/self/smaps; ordinary code, allocates.
std::uint64_t transparent_bytes(const Range* ranges, std::size_t count);

}  // namespace pinion
