// Benches that call Pinion as a middleware does, by the C API. Single-threaded.
#pragma once

#include "base/range.h"
#include "cli/command.h"
#include "pinion/pinion.h"

namespace pinion::cli {

/// Throws the reason if a call of the C API failed.
inline void must(int error) {
  if (error) throw Failure(pinion_last_error());
}

/// A run of Pinion with these options, and one domain: of its device, or of the caller's operations.
class ApiDomain {
 public:
  explicit ApiDomain(const std::string& options, const pinion_device_operations* operations = nullptr) {
    must(pinion_start(options.c_str()));
    const int error = operations ? pinion_domain_open_operations(operations, &domain_)
                                 : pinion_domain_open(nullptr, nullptr, &domain_);
    if (!error) return;
    const Failure failure(pinion_last_error());
    pinion_stop();
    throw failure;
  }
  ~ApiDomain() {
    pinion_domain_close(domain_);
    pinion_stop();
  }
  ApiDomain(const ApiDomain&) = delete;
  ApiDomain& operator=(const ApiDomain&) = delete;

  int acquire(const Range& range, pinion_lease& lease) const {
    return pinion_acquire(domain_, reinterpret_cast<void*>(range.begin), range.bytes(), PINION_ACCESS_WRITE,
                          &lease);
  }
  /// Registers it where needed, and returns the lease.
  void use(const Range& range) const {
    pinion_lease lease;
    must(acquire(range, lease));
    must(pinion_release(&lease));
  }

 private:
  pinion_domain* domain_ = nullptr;
};

}  // namespace pinion::cli
