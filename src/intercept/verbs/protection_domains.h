// Which domain of the engine registers in which protection domain of the program: one for each pair of a
// protection domain and the rights beyond local ones. So a key gives peers no right that was not asked for
// with it.
//
// One short mutex, not held while a domain is emptied. Any thread; not from hooks.
#pragma once

#include <infiniband/verbs.h>

#include <array>

#include "base/mutex.h"
#include "device/borrowed.h"
#include "lease/domain_table.h"

namespace pinion {
struct VerbsLibrary;
}

namespace pinion::verbs {

class ProtectionDomains {
 public:
  /// The number of the domain for `pd` and these flags of ibv_access_flags; -1 where there can be none.
  /// `library` as make_verbs_device() takes it.
  int domain(DomainTable& domains, ibv_pd* pd, int extra_access, const VerbsLibrary* library);

  /// Deregisters the idle regions of the protection domain's domains, before the program frees it.
  void end(DomainTable& domains, const ibv_pd* pd);
  /// Ends those of a device before the program closes it. Registrations left over go with it.
  void end(DomainTable& domains, const ibv_context* context);

 private:
  struct Entry {
    ibv_pd* pd = nullptr;  ///< null: free
    ibv_context* context = nullptr;
    std::uint32_t handle = 0;  ///< the kernel's, of the protection domain
    int extra_access = 0;
    int number = -1;
    BorrowedDevice* device = nullptr;  ///< the engine's; once made, as long as the engine runs
  };

  bool is_now(const Entry& entry, const ibv_pd* pd) const;
  bool aim(DomainTable& domains, Entry& entry, ibv_pd* pd, int extra_access, const VerbsLibrary* library);
  template <class Ends>
  void end_all(DomainTable& domains, bool closes, Ends ends);

  Mutex mutex_;
  std::array<Entry, kMostDomains> entries_ GUARDED_BY(mutex_);
};

}  // namespace pinion::verbs
