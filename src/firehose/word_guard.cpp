#include "firehose/word_guard.h"

#include <sys/syscall.h>
#include <time.h>

#include <array>
#include <atomic>

#include "monitor/memory_events.h"
#include "monitor/system_call.h"

namespace pinion::firehose {

namespace {

constexpr int kSlots = 16;

class Guarded final : public MemorySink {
 public:
  constexpr Guarded() = default;

  int publish(Address word) {
    for (int i = 0; i < kSlots; ++i) {
      Address none = 0;
      if (words_[i].compare_exchange_strong(none, word, std::memory_order_seq_cst)) return i;
    }
    return -1;
  }
  void withdraw(int slot) { words_[slot].store(0, std::memory_order_release); }

  /// A guard's thread may have lost its core, or be the one that a signal handler has interrupted.
  Answer changing(const MemoryChange& change) override {
    constexpr int kRests = 400;
    const timespec rest{0, 50'000};
    for (int i = 0; i < kRests && is_guarded(change.range); ++i)
      raw_system_call(SYS_nanosleep, arguments_of(&rest, 0));
    return Answer::proceed;
  }

 private:
  bool is_guarded(Range range) const {
    for (const auto& slot : words_) {
      const Address word = slot.load(std::memory_order_seq_cst);
      if (word != 0 && range.overlaps({word, word + sizeof(std::uint64_t)})) return true;
    }
    return false;
  }

  std::array<std::atomic<Address>, kSlots> words_{};
};

constinit Guarded g_guarded;

}  // namespace

WordGuard::WordGuard(Range word) {
  static const bool added = !memory_events::add(g_guarded);
  if (!added) return;
  slot_ = g_guarded.publish(word.begin);
  if (slot_ < 0 || !memory_events::brackets().changing(word)) return;
  g_guarded.withdraw(slot_);
  slot_ = -1;
}

WordGuard::~WordGuard() {
  if (slot_ >= 0) g_guarded.withdraw(slot_);
}

}  // namespace pinion::firehose
