// Keeps a word mapped and writable for the few instructions of an atomic operation on it: while a guard
// stands, changes of its page wait in their hooks. A guard and a hook meet as brackets and regions do
// (brackets.h): the guard is published before it looks for brackets.
//
// Any thread, outside of hooks; held for some microseconds, over nothing that waits.
#pragma once

#include "base/range.h"

namespace pinion::firehose {

class WordGuard {
 public:
  explicit WordGuard(Range word);
  ~WordGuard();
  WordGuard(const WordGuard&) = delete;
  WordGuard& operator=(const WordGuard&) = delete;

  /// False: the memory is changing, or too many guards stand; try again later.
  bool stands() const { return slot_ >= 0; }

 private:
  int slot_ = -1;
};

}  // namespace pinion::firehose
