// The functions of libibverbs that the preload stands before, of every copy in the process (callers.h). They
// have the versions that the library gives them (preload.map). Programs built for the library's first version
// (IBVERBS_1.0) come by here as the library's own code for them calls these. Programs that look functions up
// with dlsym or dlvsym are answered by lookup.cpp.
//
// verbs.h makes macros of some of the names, hence the parentheses.
#include <cerrno>

#include "device/verbs/own_verbs_call.h"
#include "intercept/exports.h"
#include "intercept/verbs/callers.h"
#include "intercept/verbs/front.h"

namespace {

using pinion::Address;
using pinion::EntryFrame;
using pinion::OwnVerbsCall;
using pinion::verbs::Answer;
using pinion::verbs::Asked;
using pinion::verbs::Caller;
using pinion::verbs::caller_at;

const ibv_context* context_of(const ibv_pd* pd) { return pd != nullptr ? pd->context : nullptr; }
const ibv_context* context_of(const ibv_mr* mr) { return mr != nullptr ? mr->context : nullptr; }

Address return_address_of(const void* address) { return reinterpret_cast<Address>(address); }

/// Ends the process where the function is missing.
template <class F>
F needed(F function, const char* name) {
  return function != nullptr ? function : reinterpret_cast<F>(pinion::next_definition(name));
}

/// The limit of locked memory, or the regions of the device or of a cgroup, are used up. Some drivers report
/// the latter by EINVAL, which also stands for faults of the program, so it is left out.
bool is_for_want_of_room(int error) {
  return error == ENOMEM || error == ENOSPC || error == EAGAIN || error == EBUSY;
}

/// A registration that passes by. Where the system has no room for it, Pinion's idle regions make way.
template <class F, class... Arguments>
ibv_mr* pass(const Asked& asked, pinion::runlog::PassedFor why, const EntryFrame& entry, F function,
             Arguments... arguments) {
  if (OwnVerbsCall::now()) return function(arguments...);
  pinion::verbs::Passing passing(asked, why, entry);
  ibv_mr* mr = function(arguments...);
  if (mr == nullptr && is_for_want_of_room(errno)) {
    const int error = errno;
    if (pinion::verbs::make_room())
      mr = function(arguments...);
    else
      errno = error;
  }
  const int error = errno;
  mr != nullptr ? passing.made(mr) : passing.refused(error);
  errno = error;
  return mr;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

extern "C" {

PINION_EXPORT ibv_mr*(ibv_reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked asked{pd, address, bytes, address_of(address), access};
  const Caller caller = caller_at(entry.return_address, context_of(pd));
  const Answer ours = pinion::verbs::register_memory(caller, asked, entry);
  if (ours.handle != nullptr) return ours.handle;
  return pass(asked, ours.why, entry, needed(caller.next.reg_mr, "ibv_reg_mr"), pd, address, bytes, access);
}

PINION_EXPORT ibv_mr*(ibv_reg_mr_iova)(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                       int access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked asked{pd, address, bytes, iova, access};
  const Caller caller = caller_at(entry.return_address, context_of(pd));
  const Answer ours = pinion::verbs::register_memory(caller, asked, entry);
  if (ours.handle != nullptr) return ours.handle;
  return pass(asked, ours.why, entry, needed(caller.next.reg_mr_iova, "ibv_reg_mr_iova"), pd, address, bytes,
              iova, access);
}

PINION_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                       unsigned access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked asked{pd, address, bytes, iova, static_cast<int>(access)};
  const Caller caller = caller_at(entry.return_address, context_of(pd));
  const Answer ours = pinion::verbs::register_memory(caller, asked, entry);
  if (ours.handle != nullptr) return ours.handle;
  return pass(asked, ours.why, entry, needed(caller.next.reg_mr_iova2, "ibv_reg_mr_iova2"), pd, address,
              bytes, iova, access);
}

PINION_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  const Address caller = return_address_of(__builtin_return_address(0));
  if (const auto result = pinion::verbs::deregister_memory(caller, mr)) return *result;
  return needed(caller_at(caller, context_of(mr)).next.dereg_mr, "ibv_dereg_mr")(mr);
}

PINION_EXPORT int ibv_rereg_mr(ibv_mr* mr, int changes, ibv_pd* pd, void* address, std::size_t bytes,
                               int access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked changed{pd, address, bytes, address_of(address), access};
  if (const auto result = pinion::verbs::reregister_memory(mr, changes, changed, entry)) return *result;
  const Caller caller = caller_at(entry.return_address, context_of(mr));
  const int result = needed(caller.next.rereg_mr, "ibv_rereg_mr")(mr, changes, pd, address, bytes, access);
  if (result == 0) pinion::verbs::own_reregistered(mr, changes, changed);
  return result;
}

PINION_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  const Caller caller = caller_at(return_address_of(__builtin_return_address(0)), context_of(pd));
  pinion::verbs::protection_domain_ends(pd);
  return needed(caller.next.dealloc_pd, "ibv_dealloc_pd")(pd);
}

PINION_EXPORT int ibv_close_device(ibv_context* context) {
  const Caller caller = caller_at(return_address_of(__builtin_return_address(0)), context);
  pinion::verbs::device_ends(context);
  return needed(caller.next.close_device, "ibv_close_device")(context);
}
}
