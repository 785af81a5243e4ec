#include "intercept/verbs/under_way.h"

#include <utility>

#include "intercept/verbs/run.h"

namespace pinion::verbs {

namespace {

struct UnderWay {
  bool counts = false;  ///< a registration of these bytes, against the limits
  std::uint64_t bytes = 0;
  const ibv_mr* mr = nullptr;  ///< taken out of the list of registrations
  OwnRegistration own;
  Handle* handle = nullptr;  ///< taken away from the program
  ibv_context* held = nullptr;

  bool has_some() const { return counts || mr != nullptr || handle != nullptr; }
};
[[gnu::tls_model("initial-exec")]] constinit thread_local UnderWay t_under_way{};

/// Has the thread's end looked at (end_call_left_behind()).
void note_thread() { static_cast<void>(this_thread()); }

void give_back_own() {
  const ibv_mr* const mr = std::exchange(t_under_way.mr, nullptr);
  if (mr == nullptr || is_in_child()) return;
  if (!OwnRegistrations::instance().add(mr, t_under_way.own)) end_own(t_under_way.own.bytes);
}

void give_back_handle() {
  Handle* const handle = std::exchange(t_under_way.handle, nullptr);
  if (handle != nullptr) handle->held.store(t_under_way.held, std::memory_order_release);
}

}  // namespace

void end_own(std::uint64_t bytes) {
  if (LeasePath* const leases = leases_that_run()) leases->end_own(bytes);
}

void end_call_left_behind(ThreadContext&) {
  if (std::exchange(t_under_way.counts, false)) end_own(t_under_way.bytes);
  give_back_own();
  give_back_handle();
}

void mend_after_a_jump() {
  if (!t_under_way.has_some() || OwnVerbsCall::now()) [[likely]]
    return;
  if (ThreadContext* const thread = this_thread()) end_call_left_behind(*thread);
}

void BytesUnderWay::begin(ThreadContext& thread, LeasePath& leases, std::uint64_t bytes) {
  leases.begin_own(thread, bytes);
  t_under_way.bytes = bytes;
  t_under_way.counts = counts_ = true;
}

void BytesUnderWay::end() {
  if (counts_) end_own(keep());
}

std::uint64_t BytesUnderWay::keep() {
  t_under_way.counts = counts_ = false;
  return t_under_way.bytes;
}

OwnLeaving::OwnLeaving(const ibv_mr* mr) {
  // This comes before the library frees it: another thread's may get its address.
  const auto own = OwnRegistrations::instance().take(mr);
  if (!own) return;
  note_thread();
  t_under_way.own = *own;
  t_under_way.mr = mr;
  is_known_ = true;
}

OwnLeaving::~OwnLeaving() {
  if (is_known_) give_back_own();
}

OwnRegistration OwnLeaving::gone() {
  t_under_way.mr = nullptr;
  return t_under_way.own;
}

TakenHandle::TakenHandle(Handle& handle) {
  ibv_context* const held = handle.held.exchange(nullptr, std::memory_order_acq_rel);
  if (held == nullptr) return;
  note_thread();
  t_under_way.held = held;
  t_under_way.handle = &handle;
  is_ours_ = true;
}

TakenHandle::~TakenHandle() {
  if (is_ours_) give_back_handle();
}

void TakenHandle::has_moved_to(ibv_context* context) { t_under_way.held = context; }

void TakenHandle::keep() { t_under_way.handle = nullptr; }

}  // namespace pinion::verbs
