#include "monitor/patch_exposure.h"

#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include "monitor/hooked_functions.h"

namespace pinion {
namespace {

constinit std::atomic<void (*)()> callback_exposed{nullptr};

/// A bit for each of `hooks` whose entry may be written over now.
std::atomic<std::uint32_t> exposed_entries{0};
static_assert(kFunctions <= 32);

/// The pages of the patched entries, from the first to the last; empty while there are none.
struct {
  std::atomic<Address> begin{~Address{0}}, end{0};
  void cover(Range pages) {
    begin.store(std::min(begin.load(), pages.begin));
    end.store(std::max(end.load(), pages.end));
  }
  bool touched_by(Range range) const {
    return range.begin < end.load(std::memory_order_relaxed) &&
           begin.load(std::memory_order_relaxed) < range.end;
  }
} constinit patched_code;

std::uint32_t entries_in(Range range) {
  std::uint32_t entries = 0;
  for (const Hook& hook : hooks) {
    if (range.overlaps(hook.patch.pages())) entries |= 1u << (&hook - hooks);
  }
  return entries;
}

/// Set while our own code changes entries. Against `exposed_entries` it works as brackets do: each side
/// publishes its own and then looks at the other's.
constinit std::atomic<bool> own_patching{false};

/// In the hook of a thread that has opened an entry.
void await_own_patching() {
  constexpr int kRests = 20'000;  // one second at least
  for (int i = 0; own_patching.load(std::memory_order_seq_cst) && i < kRests; ++i) {
    const timespec rest{0, 50'000};
    raw_system_call(SYS_nanosleep, arguments_of(&rest, 0));
  }
}

void report_exposed() {
  if (const auto exposed = callback_exposed.load(std::memory_order_acquire)) exposed();
}

}  // namespace

void report_exposure_to(void (*exposed)()) { callback_exposed.store(exposed, std::memory_order_release); }

void expect_exposure_of(Range code) { patched_code.cover(code); }

bool hooks_exposed() { return exposed_entries.load(std::memory_order_seq_cst) != 0; }

OwnPatching::OwnPatching() {
  own_patching.store(true, std::memory_order_seq_cst);
  is_ours_ = !hooks_exposed();
  if (!is_ours_) own_patching.store(false, std::memory_order_seq_cst);
}

OwnPatching::~OwnPatching() { own_patching.store(false, std::memory_order_seq_cst); }

void OwnPatching::forget_in_child() { own_patching.store(false, std::memory_order_relaxed); }

void note_change_of_code(Range range) {
  if (patched_code.touched_by(range) && entries_in(range) != 0) report_exposed();
}

ProtectionChange::ProtectionChange(const SystemCallArguments& arguments) {
  const Range range =
      Range::of(reinterpret_cast<void*>(arguments[0]), static_cast<std::size_t>(arguments[1]));
  if (!patched_code.touched_by(range)) [[likely]]
    return;
  entries_ = entries_in(range);
  opens_ = (arguments[2] & PROT_WRITE) != 0;
  if (entries_ == 0 || !opens_) return;
  entries_ &= ~exposed_entries.fetch_or(entries_);
  await_own_patching();
  report_exposed();
}

void note_restored_entries() {
  for (Hook& hook : hooks) hook.patch.note_restored();
}

void ProtectionChange::done(long result) const {
  if (entries_ == 0) return;
  if (!opens_) note_restored_entries();
  if (is_error(result) == opens_) exposed_entries.fetch_and(~entries_);
}

}  // namespace pinion
