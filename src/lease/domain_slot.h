// A domain of the engine with all that belongs to it: its device, its cache, the share of the figures that is
// its own, and the objects by which the helper decides about it. Slots outlive runs (run_memory.h): data that
// threads may read is never freed. Each member names its guard.
#pragma once

#include <memory>
#include <string>

#include "device/borrowed.h"
#include "lease/meter.h"
#include "lease/thread_context.h"
#include "registry/domain.h"
#include "retention/desk.h"

namespace pinion {

struct DomainSlot {
  DomainSlot(int of, Meter& process) : number(of), meter(process) {}

  const int number;
  std::string device_name, nic;      ///< by which it was opened; guarded by the table's mutex, as `open`
  bool open = true;                  ///< false: closed, until it is opened again with the same device
  DomainMeter meter;                 ///< as meter.h states
  ThreadCounters by_helper;          ///< written by the helper
  double modelled_busy_seconds = 0;  ///< of the device, when it is gone
  std::unique_ptr<Device> device;    ///< null only after the run
  /// The device, where the domain was opened by borrow(); guarded as `open`.
  BorrowedDevice* borrowed = nullptr;
  std::unique_ptr<Domain> domain;  ///< as registry/domain.h states
  KeptDomain kept;                 ///< as retention/desk.h states
};

}  // namespace pinion
