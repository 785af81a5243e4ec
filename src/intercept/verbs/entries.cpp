// The functions of libibverbs that the preload stands before. They have the versions that the library gives
// them (preload.map). Programs built for the library's first version (IBVERBS_1.0) come by here as the
// library's own code for them calls these. Programs that look functions up with dlsym or dlvsym
// are answered by lookup.cpp.
//
// verbs.h makes macros of some of the names, hence the parentheses.
#include <cerrno>

#include "device/verbs/own_verbs_call.h"
#include "intercept/exports.h"
#include "intercept/verbs/front.h"

namespace {

using pinion::EntryFrame;
using pinion::NextFunction;
using pinion::OwnVerbsCall;
using pinion::verbs::Asked;

// The library's own functions. Its providers keep it loaded once one of them has been called.
constinit NextFunction<decltype(ibv_reg_mr)> next_reg_mr{"ibv_reg_mr"};
constinit NextFunction<decltype(ibv_reg_mr_iova)> next_reg_mr_iova{"ibv_reg_mr_iova"};
constinit NextFunction<decltype(ibv_reg_mr_iova2)> next_reg_mr_iova2{"ibv_reg_mr_iova2"};
constinit NextFunction<decltype(ibv_dereg_mr)> next_dereg_mr{"ibv_dereg_mr"};
constinit NextFunction<decltype(ibv_rereg_mr)> next_rereg_mr{"ibv_rereg_mr"};
constinit NextFunction<decltype(ibv_dealloc_pd)> next_dealloc_pd{"ibv_dealloc_pd"};
constinit NextFunction<decltype(ibv_close_device)> next_close_device{"ibv_close_device"};

pinion::verbs::Library library() { return {next_reg_mr.get(), next_dereg_mr.get()}; }

/// The limit of locked memory, or the regions of the device or of a cgroup, are used up. Some drivers report
/// the latter by EINVAL, which also stands for faults of the program, so it is left out.
bool is_for_want_of_room(int error) {
  return error == ENOMEM || error == ENOSPC || error == EAGAIN || error == EBUSY;
}

/// A registration that passes by. Where the system has no room for it, Pinion's idle regions make way.
template <class F, class... Arguments>
ibv_mr* pass(const Asked& asked, const EntryFrame& entry, F function, Arguments... arguments) {
  if (OwnVerbsCall::now()) return function(arguments...);
  pinion::verbs::Passing passing(asked, entry);
  const OwnVerbsCall own_call;
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
  if (ibv_mr* const ours = pinion::verbs::register_memory(library(), asked, entry)) return ours;
  return pass(asked, entry, next_reg_mr.get(), pd, address, bytes, access);
}

PINION_EXPORT ibv_mr*(ibv_reg_mr_iova)(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                       int access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked asked{pd, address, bytes, iova, access};
  if (ibv_mr* const ours = pinion::verbs::register_memory(library(), asked, entry)) return ours;
  return pass(asked, entry, next_reg_mr_iova.get(), pd, address, bytes, iova, access);
}

PINION_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                       unsigned access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked asked{pd, address, bytes, iova, static_cast<int>(access)};
  if (ibv_mr* const ours = pinion::verbs::register_memory(library(), asked, entry)) return ours;
  return pass(asked, entry, next_reg_mr_iova2.get(), pd, address, bytes, iova, access);
}

PINION_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  if (const auto result = pinion::verbs::deregister_memory(library(), mr)) return *result;
  return next_dereg_mr.get()(mr);
}

PINION_EXPORT int ibv_rereg_mr(ibv_mr* mr, int changes, ibv_pd* pd, void* address, std::size_t bytes,
                               int access) {
  const EntryFrame entry = EntryFrame::here();
  const Asked changed{pd, address, bytes, address_of(address), access};
  if (const auto result = pinion::verbs::reregister_memory(library(), mr, changes, changed, entry))
    return *result;
  const int result = next_rereg_mr.get()(mr, changes, pd, address, bytes, access);
  if (result == 0) pinion::verbs::own_reregistered(mr, changes, changed);
  return result;
}

PINION_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  pinion::verbs::protection_domain_ends(pd);
  return next_dealloc_pd.get()(pd);
}

PINION_EXPORT int ibv_close_device(ibv_context* context) {
  pinion::verbs::device_ends(context);
  return next_close_device.get()(context);
}
}
