// Who calls a function of libibverbs: what it has to do with registrations, and the functions that its call
// goes on to. A process may have several copies of libibverbs, whose structures differ inside; the preload
// meets the calls of them all.
//
// Owns a table of answers, which holds until code is unmapped. Any thread; not from hooks. An answer takes
// only the dynamic linker's short lock, the first time.
#pragma once

#include <infiniband/verbs.h>

#include "base/range.h"
#include "device/verbs/verbs_library.h"

namespace pinion::verbs {

struct Caller {
  /// The next functions behind the preload: another tool's, or those of a copy of libibverbs. Of several
  /// copies that is the one which opened the context; where the context does not tell, the one that the
  /// caller's object is bound to.
  RegistrationFunctions next;
  /// That copy; null: unknown.
  const VerbsLibrary* library = nullptr;
  /// A library that has a registration cache of its own (UCX, libfabric, Open MPI): keys outlive its
  /// deregistration with its own cache, too, and it lets none of its transfers do so. That is judged by the
  /// object that calls, as others in the process may rely on the end.
  bool caches_itself = false;

  bool operator==(const Caller&) const = default;
};

/// `context`: of the objects that the call is about; null: unknown.
Caller caller_at(Address return_address, const ibv_context* context);

/// Looks it up anew at each call.
bool is_ucx(Address return_address);

}  // namespace pinion::verbs
