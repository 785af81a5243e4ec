// A change of the process's memory, as the hooks report it before it happens, and the answers to it. Values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion {

enum class Answer : std::uint8_t {
  proceed,
  hold_back,  ///< the call returns success at once, and is carried out later (held_back.h)
  refuse,     ///< the call fails with ENOMEM, and the memory stays as it is
  done,       ///< the call returns success: the sink has left the memory as the call would
  copy,       ///< mremap: the memory keeps its place, and a copy of it moves
};

/// The calls that a sink may treat in a way of their own.
enum class ChangeKind : std::uint8_t {
  other,
  zeros,   ///< madvise: private anonymous memory reads as zeros from then on
  lazily,  ///< madvise: as it is, or zeros
  unmap,   ///< munmap. Answered with `done`, the memory stays mapped (MemorySink::unmapped()).
  heap,    ///< the break shrinks. malloc calls, with its lock held.
  rights,  ///< mprotect: the pages stay, and lack rights
  moves,   ///< mremap: private memory may go elsewhere
};

/// A mapping that has appeared where the kernel had none.
struct NewMapping {
  Range range;
  /// Private anonymous memory to read and write, made by mmap without further wishes. A program that wishes
  /// for an address may want one mapping with a neighbour, for mremap, and only mappings of one kind merge.
  bool plain = false;
  Range tail{};  ///< behind it, and unknown to the program (mapping_tails.h)
};

/// A form that a sink wishes a plain mapping to have before it is made.
struct MappingWish {
  std::size_t alignment = 0;  ///< its address: a multiple of this power of two; 0: of a page
  bool tail = false;          ///< it goes on, unknown to the program, to the next such multiple
};

struct MemoryChange {
  Range range;
  /// The only answer beside `proceed` that has an effect.
  ///   hold_back  munmap, by way of libc
  ///   refuse     the other calls by way of libc, except shmdt, which has no error for it
  ///   proceed    none: changes that the kernel reports or the program brackets
  /// A call that bypasses libc reaches the sinks by the kernel's report, or not at all.
  Answer alternative = Answer::proceed;
  /// `zeros`, `lazily` and `unmap` take the answer `done` too; `moves` takes `copy`.
  ChangeKind kind = ChangeKind::other;

  /// The contents go, and the mapping stays.
  bool is_advice() const { return kind == ChangeKind::zeros || kind == ChangeKind::lazily; }
  bool takes(Answer answer) const {
    return answer == Answer::proceed || answer == alternative ||
           (answer == Answer::done && (is_advice() || kind == ChangeKind::unmap)) ||
           (answer == Answer::copy && kind == ChangeKind::moves);
  }
};

}  // namespace pinion
