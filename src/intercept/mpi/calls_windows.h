// Written by hand: the memory of windows, leased while the window lives. Also the calls that complete
// one-sided operations at their origin and so return its buffers.
#pragma once

#include "intercept/mpi/buffers.h"
#include "intercept/mpi/entries.h"

namespace pinion::mpi::PINION_MPI_ABI {

inline void expose(const EntryFrame& entry, Win win, void* memory, Aint bytes) {
  KnownHandles::windows().add(key_of(win));
  Buffers use(entry, CallKind::window);
  use.called();
  use.toward(win, -1);
  use.exposes(memory, bytes);
  use.hand_over_to(Holdings::windows(), key_of(win), reinterpret_cast<Address>(memory));
}

template <int entry, class Unit>
int Win_create(void* base, Aint size, Unit unit, Info info, Comm comm, Win* win) {
  const int result =
      next_of<entry, int(void*, Aint, Unit, Info, Comm, Win*)>()(base, size, unit, info, comm, win);
  if (result == kSuccess) expose(EntryFrame::here(), *win, base, size);
  return result;
}

template <int entry, class Unit>
int Win_allocate(Aint size, Unit unit, Info info, Comm comm, void* base, Win* win) {
  const int result =
      next_of<entry, int(Aint, Unit, Info, Comm, void*, Win*)>()(size, unit, info, comm, base, win);
  if (result == kSuccess) expose(EntryFrame::here(), *win, *static_cast<void**>(base), size);
  return result;
}

template <int entry, class Unit>
int Win_allocate_shared(Aint size, Unit unit, Info info, Comm comm, void* base, Win* win) {
  return Win_allocate<entry, Unit>(size, unit, info, comm, base, win);
}

template <int entry>
int Win_attach(Win win, void* base, Aint size) {
  const int result = next_of<entry, int(Win, void*, Aint)>()(win, base, size);
  if (result == kSuccess) expose(EntryFrame::here(), win, base, size);
  return result;
}

template <int entry>
int Win_detach(Win win, const void* base) {
  const int result = next_of<entry, int(Win, const void*)>()(win, base);
  Nesting nesting;
  if (!Holdings::windows().empty() && nesting.enter())
    Holdings::windows().release(nesting.thread(), nesting.lease_path(), key_of(win),
                                reinterpret_cast<Address>(base));
  return result;
}

template <int entry>
int Win_free(Win* win) {
  const auto next = next_of<entry, int(Win*)>();
  if (!win) return next(win);
  const auto key = key_of(*win);
  KnownHandles::windows().remove(key);
  const int result = next(win);
  Nesting nesting;
  if (result != kSuccess || (Holdings::windows().empty() && Holdings::origins().empty()) || !nesting.enter())
    return result;
  Holdings::windows().release(nesting.thread(), nesting.lease_path(), key);
  Holdings::origins().release(nesting.thread(), nesting.lease_path(), key);
  return result;
}

// ---- synchronisation ----

inline void origins_are_complete(Win win) {
  Nesting nesting;
  if (!Holdings::origins().empty() && nesting.enter())
    Holdings::origins().release(nesting.thread(), nesting.lease_path(), key_of(win));
}

inline void origins_are_complete(Win win, int target) {
  Nesting nesting;
  if (!Holdings::origins().empty() && nesting.enter())
    Holdings::origins().release(nesting.thread(), nesting.lease_path(), key_of(win),
                                static_cast<std::uint64_t>(target));
}

template <int entry>
int synchronised(Win win) {
  const int result = next_of<entry, int(Win)>()(win);
  origins_are_complete(win);
  return result;
}

template <int entry>
int synchronised(int target, Win win) {
  const int result = next_of<entry, int(int, Win)>()(target, win);
  origins_are_complete(win, target);
  return result;
}

template <int entry>
int Win_fence(int assertion, Win win) {
  const int result = next_of<entry, int(int, Win)>()(assertion, win);
  origins_are_complete(win);
  return result;
}

// clang-format off
template <int entry> int Win_complete(Win win) { return synchronised<entry>(win); }
template <int entry> int Win_unlock_all(Win win) { return synchronised<entry>(win); }
template <int entry> int Win_flush_all(Win win) { return synchronised<entry>(win); }
template <int entry> int Win_flush_local_all(Win win) { return synchronised<entry>(win); }
template <int entry> int Win_unlock(int target, Win win) { return synchronised<entry>(target, win); }
template <int entry> int Win_flush(int target, Win win) { return synchronised<entry>(target, win); }
template <int entry> int Win_flush_local(int target, Win win) { return synchronised<entry>(target, win); }
// clang-format on

}  // namespace pinion::mpi::PINION_MPI_ABI
