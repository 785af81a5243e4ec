// Keeps other threads' submissions out of a stream between the pieces of a staged copy, so that no kernel of
// theirs sees a copy half done where a plain one is whole (evidence-gpu.md, "Is a copy cut?").
//
//   const Kept<SubmissionGate::Entry> entry(submission_gate(), stream);  // each wrapped call that submits
//   return plain();
//
//   const Kept<SubmissionGate::Exclusive> alone(submission_gate(), driver, stream, context);
//   if (!alone->held()) return std::nullopt;                             // a staged copy
//
// STRUCTURE: an entry is one word in a table: its stream. Exclusions stand in a small table under a spin
// lock. CONCURRENCY: Dekker's protocol. An entry publishes its word, then reads the number of exclusions; an
// exclusion counts itself, then reads the words. Both sides use sequentially consistent operations, so at
// least one of them sees the other. An entry that meets an exclusion withdraws, sleeps until one ends, and
// tries again. An exclusion that meets an entry waits a moment, and gives up then: the entry may be a copy
// that waits for its stream, and the exclusion would hold back all that could open that stream.
//
// A call that records an event, or lets a stream wait for one submits as a launch does: beside a staged copy
// it would find half of it submitted. One that begins a capture is exclusive if it can be: an entry that has
// asked whether its stream captures then knows it.
//
// A synchronous copy of pageable memory that waits for its stream keeps all other work of its context out of
// the driver. A thread that waits there, exclusive, would hold back whoever lets that stream go on. So such a
// copy names its context, and conflicts with each exclusion of it until that one releases the context.
//
// Two streams conflict if they are one, or if one is the legacy stream and the other one blocks with it in
// the same context. An entry asks the driver about its own stream on a possible conflict. An exclusion asks
// about its own alone: another thread's stream may be destroyed by then. So it takes each entry for a
// blocking one.
//
// Any thread, outside of memory hooks and signal handlers. Entries of one thread may be nested. An Entry
// spans the submission, and no wait that another stream's work or thread has to end. A thread inside an Entry
// may become exclusive: its own entries do not count.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "device/cuda/driver_api.h"
#include "intercept/cuda/kept.h"

namespace pinion::cuda {

/// The standard policy: atomics of the machine, sleep by futex, patience by the clock.
struct SleepingAtomics : StdAtomics {
  /// Sleeps while the word has that value. It may return early.
  static void sleep(Atomic<std::uint32_t>& word, std::uint32_t value);
  static void wake(Atomic<std::uint32_t>& word);

  /// How long an exclusion waits for entries.
  class Patience {
   public:
    /// Waits a little. False: it has run out.
    bool wait();

   private:
    unsigned turns_ = 0;
    Time until_ = 0;
  };
};

/// The gate's view of the calling thread.
struct SubmittingThread {
  const void* innermost = nullptr;  ///< its last Entry that has a slot
  std::uint32_t index = 0;          ///< where it begins to look for a slot; 0: it has none yet
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local SubmittingThread t_submitting{};
inline SubmittingThread& submitting_thread() { return t_submitting; }

template <class Policy, std::size_t Slots = 64, std::size_t Exclusions = 16>
class BasicSubmissionGate {
  template <class T>
  using Atomic = typename Policy::template Atomic<T>;
  using Word = std::uintptr_t;  ///< a stream's handle
  struct alignas(64) Slot {
    Atomic<Word> stream{kFree};
    Atomic<Word> context{kFree};  ///< of a synchronous copy
  };

 public:
  /// The calling thread submits to a stream. Waits for the end of exclusions that conflict.
  class Entry {
   public:
    Entry(BasicSubmissionGate& gate, Stream stream) : Entry(gate, word_of(stream), kFree) {}
    /// Announces a copy that may wait there, and keep the context's other work out meanwhile.
    Entry(BasicSubmissionGate& gate, Stream stream, Context context)
        : Entry(gate, word_of(stream), reinterpret_cast<Word>(context)) {}
    /// To all streams: it conflicts with every exclusion.
    explicit Entry(BasicSubmissionGate& gate) : Entry(gate, kEverything, kFree) {}
    ~Entry() {
      if (!announced_) return;
      gate_.withdraw(*this);
      submitting_thread().innermost = outer_;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class BasicSubmissionGate;
    Entry(BasicSubmissionGate& gate, Word word, Word context, const void* outer)
        : gate_(gate), word_(word), context_(context), outer_(static_cast<const Entry*>(outer)) {}
    /// The destructor ends one that an exception leaves, too.
    Entry(BasicSubmissionGate& gate, Word word, Word context)
        : Entry(gate, word, context, submitting_thread().innermost) {
      if (is_nested()) return;
      SubmittingThread& thread = submitting_thread();
      gate_.enter(*this, thread);
      thread.innermost = this;
    }
    /// An outer entry of this thread has announced the stream.
    bool is_nested() const {
      for (const Entry* outer = outer_; outer != nullptr; outer = outer->outer_) {
        if (&outer->gate_ == &gate_ && outer->word_ == word_) return true;
      }
      return false;
    }

    BasicSubmissionGate& gate_;
    const Word word_;
    const Word context_;  ///< that it may keep others out of; kFree: none
    const Entry* const outer_;
    Slot* slot_ = nullptr;  ///< null: one of those that overflow
    bool announced_ = false;
  };

  /// The calling thread alone submits to a stream, if held() says so. Waits for exclusions that conflict, and
  /// a moment for entries that do.
  class Exclusive {
   public:
    Exclusive(BasicSubmissionGate& gate, const Driver& driver, Stream stream, Context context)
        : Exclusive(gate) {
      Exclusion exclusion{word_of(stream), context, false, true, &submitting_thread(), &driver};
      exclusion.non_blocking = is_non_blocking(driver, stream);
      gate_.exclude(exclusion, place_);
    }
    /// Excludes all streams of the context. Not held if there is another exclusion.
    Exclusive(BasicSubmissionGate& gate, const Driver& driver, Context context) : Exclusive(gate) {
      gate_.exclude({kEverything, context, false, true, &submitting_thread(), &driver}, place_);
    }
    ~Exclusive() { end(); }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

    bool held() const { return place_ >= 0; }
    /// The thread has submitted all that it will: synchronous copies of the context may enter, if they are
    /// of other streams.
    void release_context() {
      if (place_ >= 0) gate_.release_context(place_);
    }
    /// Ends it before the destructor.
    void end() {
      if (place_ >= 0) gate_.end(place_);
      place_ = -1;
    }

   private:
    explicit Exclusive(BasicSubmissionGate& gate) : gate_(gate) {}

    BasicSubmissionGate& gate_;
    int place_ = -1;
  };

  /// In a forked child: entries and exclusions are those of the parent's threads.
  void abandon_after_fork() {
    for (Slot& slot : slots_) {
      slot.stream.store(kFree, std::memory_order_relaxed);
      slot.context.store(kFree, std::memory_order_relaxed);
    }
    overflow_.store(0, std::memory_order_relaxed);
    new (&lock_) BasicSpinLock<Policy>;
    forget_exclusions();
    submitting_thread().innermost = nullptr;
  }

 private:
  static constexpr Word kFree = 0, kEverything = ~Word{0};

  struct Exclusion {
    Word stream = kFree;  ///< kFree: the row is unused
    Context context = nullptr;
    bool non_blocking = false;
    bool submits = true;  ///< its thread may wait in the driver
    const void* thread = nullptr;
    const Driver* driver = nullptr;
  };

  static Word word_of(Stream stream) {
    return reinterpret_cast<Word>(stream == nullptr ? kLegacyStream : stream);
  }
  static bool is_legacy(Word word) { return word == reinterpret_cast<Word>(kLegacyStream); }
  static bool is_default(Word word) {
    return is_legacy(word) || word == reinterpret_cast<Word>(kThreadStream);
  }
  /// The per-thread default streams of two threads have one handle, and are two streams.
  static bool is_one_stream(Word a, Word b) {
    if (a == kEverything || b == kEverything) return true;
    return a == b && (is_legacy(a) || !is_default(a));
  }
  static bool is_non_blocking(const Driver& driver, Stream stream) {
    if (is_default(word_of(stream))) return false;
    unsigned flags = 0;
    return driver.stream_flags(stream, &flags) == kSuccess && (flags & kStreamNonBlocking) != 0;
  }

  // ---- entries ----

  void enter(Entry& entry, SubmittingThread& thread) {
    for (;;) {
      const std::uint32_t ends = ends_.load(std::memory_order_acquire);
      announce(entry, thread);
      if (exclusions_.load(std::memory_order_seq_cst) == 0 || !must_wait(entry, thread)) return;
      withdraw(entry);
      wait_for_end(ends);
    }
  }
  void announce(Entry& entry, SubmittingThread& thread) {
    if (thread.index == 0) thread.index = next_index();
    for (std::size_t i = 0; i < Slots; ++i) {
      Slot& slot = slots_[(thread.index + i) % Slots];
      Word free = kFree;
      if (slot.stream.load(std::memory_order_relaxed) == kFree &&
          slot.stream.compare_exchange_strong(free, entry.word_, std::memory_order_seq_cst)) {
        if (entry.context_ != kFree) slot.context.store(entry.context_, std::memory_order_seq_cst);
        entry.slot_ = &slot;
        entry.announced_ = true;
        return;
      }
    }
    entry.slot_ = nullptr;
    overflow_.fetch_add(1, std::memory_order_seq_cst);
    entry.announced_ = true;
  }
  void withdraw(Entry& entry) {
    entry.announced_ = false;
    if (entry.slot_ == nullptr) {
      overflow_.fetch_sub(1, std::memory_order_release);
      return;
    }
    if (entry.context_ != kFree) entry.slot_->context.store(kFree, std::memory_order_relaxed);
    entry.slot_->stream.store(kFree, std::memory_order_release);
  }
  bool must_wait(const Entry& entry, const SubmittingThread& thread) {
    std::array<Exclusion, Exclusions> found;
    std::size_t count = 0;
    {
      const ScopedLock lock(lock_);
      for (const Exclusion& row : rows_) {
        if (row.stream != kFree && row.thread != &thread) found[count++] = row;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (conflicts(entry, found[i])) return true;
    }
    return false;
  }
  /// Asks the driver about the entry's own stream. What it refuses to say counts as a conflict.
  static bool conflicts(const Entry& entry, const Exclusion& other) {
    const Word word = entry.word_;
    if (word == kEverything) return true;
    const auto stream = reinterpret_cast<Stream>(word);
    // Captured work is for later, and its thread asks no more than this: a capture is lost easily.
    int capturing = kCaptureNone;
    if (other.driver->stream_is_capturing(stream, &capturing) == kSuccess && capturing != kCaptureNone)
      return false;
    if (other.submits && entry.context_ != kFree && entry.context_ == reinterpret_cast<Word>(other.context))
      return true;
    const Kept<RelaxedCapture> relaxed(*other.driver);
    if (other.stream != kEverything) {
      if (is_one_stream(word, other.stream)) return true;
      if (!is_legacy(word) && !is_legacy(other.stream)) return false;
      if (other.non_blocking || is_non_blocking(*other.driver, stream)) return false;
    }
    Context context = nullptr;
    const Result asked = is_default(word) ? other.driver->context_current(&context)
                                          : other.driver->stream_context(stream, &context);
    return asked != kSuccess || context == other.context;
  }
  void wait_for_end(std::uint32_t ends) {
    for (int spins = 0; spins < 64; ++spins) {
      if (ends_.load(std::memory_order_acquire) != ends) return;
      Policy::relax();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (ends_.load(std::memory_order_seq_cst) == ends) Policy::sleep(ends_, ends);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  // ---- exclusions ----

  /// Sets the place of the exclusion in the table; -1: it is not to be had now.
  void exclude(const Exclusion& exclusion, int& place) {
    for (;;) {
      const std::uint32_t ends = ends_.load(std::memory_order_acquire);
      if (insert(exclusion, place)) break;
      if (exclusion.stream == kEverything) return;
      wait_for_end(ends);
    }
    if (place < 0) return;
    typename Policy::Patience patience;
    while (has_conflicting_entry(exclusion)) {
      if (patience.wait()) continue;
      end(place);
      place = -1;
      return;
    }
  }
  /// False: another one conflicts. The place is -1 if the table is full.
  bool insert(const Exclusion& exclusion, int& place) {
    const ScopedLock lock(lock_);
    int free = -1;
    for (std::size_t i = 0; i < Exclusions; ++i) {
      const Exclusion& row = rows_[i];
      if (row.stream == kFree)
        free = static_cast<int>(i);
      else if (row.thread != exclusion.thread && conflict(row, exclusion))
        return false;
    }
    place = free;
    if (place < 0) return true;
    rows_[static_cast<std::size_t>(place)] = exclusion;
    exclusions_.fetch_add(1, std::memory_order_seq_cst);
    return true;
  }
  static bool conflict(const Exclusion& a, const Exclusion& b) {
    if (is_one_stream(a.stream, b.stream)) return true;
    return (is_legacy(a.stream) || is_legacy(b.stream)) && !a.non_blocking && !b.non_blocking &&
           a.context == b.context;
  }
  bool has_conflicting_entry(const Exclusion& exclusion) const {
    std::uint32_t own_overflow = 0;
    for (auto own = own_entries(); own != nullptr; own = own->outer_) {
      if (&own->gate_ == this && own->slot_ == nullptr) ++own_overflow;
    }
    if (overflow_.load(std::memory_order_seq_cst) > own_overflow) return true;
    for (const Slot& slot : slots_) {
      const Word word = slot.stream.load(std::memory_order_seq_cst);
      if (word == kFree || is_own(slot)) continue;
      if (is_legacy(exclusion.stream) || is_one_stream(word, exclusion.stream) ||
          (is_legacy(word) && !exclusion.non_blocking) ||
          (exclusion.context != nullptr &&
           slot.context.load(std::memory_order_seq_cst) == reinterpret_cast<Word>(exclusion.context)))
        return true;
    }
    return false;
  }
  static const Entry* own_entries() { return static_cast<const Entry*>(submitting_thread().innermost); }
  bool is_own(const Slot& slot) const {
    for (auto own = own_entries(); own != nullptr; own = own->outer_) {
      if (own->slot_ == &slot) return true;
    }
    return false;
  }
  void end(int place) {
    {
      const ScopedLock lock(lock_);
      rows_[static_cast<std::size_t>(place)] = {};
      exclusions_.fetch_sub(1, std::memory_order_seq_cst);
    }
    let_look_again();
  }
  void release_context(int place) {
    {
      const ScopedLock lock(lock_);
      rows_[static_cast<std::size_t>(place)].submits = false;
    }
    let_look_again();
  }
  void let_look_again() {
    ends_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) Policy::wake(ends_);
  }
  void forget_exclusions() NO_THREAD_SAFETY_ANALYSIS {
    rows_ = {};
    exclusions_.store(0, std::memory_order_relaxed);
    sleepers_.store(0, std::memory_order_relaxed);
  }

  /// 1 to 2^32 - 1, so that the first threads have slots of their own.
  static std::uint32_t next_index() {
    static std::atomic<std::uint32_t> last{0};
    const std::uint32_t index = last.fetch_add(1, std::memory_order_relaxed) + 1;
    return index == 0 ? 1 : index;
  }

  std::array<Slot, Slots> slots_;
  alignas(64) Atomic<std::uint32_t> exclusions_{0};  ///< read by each entry, written seldom
  Atomic<std::uint32_t> ends_{0};  ///< ends of exclusions, and of their conflicts: what waits sleep on
  Atomic<std::uint32_t> sleepers_{0};
  alignas(64) Atomic<std::uint32_t> overflow_{0};  ///< entries without a slot conflict with everything
  BasicSpinLock<Policy> lock_;
  std::array<Exclusion, Exclusions> rows_ GUARDED_BY(lock_);
};

using SubmissionGate = BasicSubmissionGate<SleepingAtomics>;

/// The gate of the process.
[[gnu::visibility("hidden")]] extern SubmissionGate g_submission_gate;
inline SubmissionGate& submission_gate() { return g_submission_gate; }

}  // namespace pinion::cuda
