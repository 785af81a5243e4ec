#include "intercept/verbs/protection_domains.h"

#include "base/warning.h"
#include "device/verbs/verbs.h"
#include "device/verbs/verbs_library.h"
#include "intercept/definitions.h"
#include "lease/lease.h"

namespace pinion::verbs {

namespace {

/// `library`: that of the program's call; null: unknown.
void say_why_not(const Error& error, const VerbsLibrary* library) {
  static const bool said = [&] {
    const void* const code = library != nullptr ? reinterpret_cast<const void*>(library->dereg_mr) : nullptr;
    const char* const file = code != nullptr ? file_around(code) : "";
    warn("a protection domain%s%s is left to the program: %s (said once)", *file != '\0' ? " of " : "", file,
         error.message);
    return true;
  }();
  static_cast<void>(said);
}

}  // namespace

/// One that was freed without a call that is met (ibv_unimport_pd), and another made in its place, is
/// another.
bool ProtectionDomains::is_now(const Entry& entry, const ibv_pd* pd) const {
  return entry.pd == pd && entry.context == pd->context && entry.handle == pd->handle;
}

int ProtectionDomains::domain(DomainTable& domains, ibv_pd* pd, int extra_access,
                              const VerbsLibrary* library) {
  const MutexLock lock(mutex_);
  Entry* unused = nullptr;
  for (Entry& entry : entries_) {
    if (is_now(entry, pd) && entry.extra_access == extra_access) return entry.number;
    if (entry.pd == nullptr && (unused == nullptr || unused->number < 0)) unused = &entry;
  }
  if (unused == nullptr) {
    say_why_not(
        Error::make(ENOSPC, "%d of them are in use, counted with their kinds of remote rights", kMostDomains),
        library);
    return -1;
  }
  return aim(domains, *unused, pd, extra_access, library) ? unused->number : -1;
}

bool ProtectionDomains::aim(DomainTable& domains, Entry& entry, ibv_pd* pd, int extra_access,
                            const VerbsLibrary* library) {
  VerbsDeviceResult made = make_verbs_device(pd, extra_access, library);
  if (made.error) {
    say_why_not(made.error, library);
    return false;
  }
  // The library was asked meanwhile, and the program may have ended the run there.
  const LeasePath* const leases = LeasePath::running();
  if (leases == nullptr || &leases->domains() != &domains) return false;
  if (entry.number >= 0) {
    entry.device->lend(std::move(made.device));
    domains.reopen(entry.number);
  } else {
    auto device = std::make_unique<BorrowedDevice>(std::move(made.device));
    entry.device = device.get();
    Error error;
    entry.number = domains.add(std::move(device), error);
    if (entry.number < 0) {
      say_why_not(error, library);
      return false;
    }
  }
  entry.pd = pd;
  entry.context = pd->context;
  entry.handle = pd->handle;
  entry.extra_access = extra_access;
  return true;
}

/// Passes the entries by reference, and holds the lock where it reads or writes one.
template <class Ends>
void ProtectionDomains::end_all(DomainTable& domains, bool closes, Ends ends) NO_THREAD_SAFETY_ANALYSIS {
  for (Entry& entry : entries_) {
    {
      const MutexLock lock(mutex_);
      if (entry.pd == nullptr || !ends(entry)) continue;
    }
    // The program registers only in domains that stay, so this entry is constant meanwhile.
    const bool empty = !domains.close(entry.number);
    const MutexLock lock(mutex_);
    if (empty) {
      entry.device->lend(nullptr);
      entry.pd = nullptr;
    } else if (closes) {
      // Its regions stay leased to the end: the domain is of no further use, nor is its place.
      entry.device->abandon();
      entry = {};
    }
  }
}

void ProtectionDomains::end(DomainTable& domains, const ibv_pd* pd) {
  end_all(domains, false, [pd](const Entry& entry) { return entry.pd == pd; });
}

void ProtectionDomains::end(DomainTable& domains, const ibv_context* context) {
  end_all(domains, true, [context](const Entry& entry) { return entry.context == context; });
}

}  // namespace pinion::verbs
