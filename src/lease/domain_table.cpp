#include "lease/domain_table.h"

#include <chrono>
#include <new>
#include <thread>

#include "base/held_signals.h"
#include "device/make.h"
#include "lease/fork_gate.h"
#include "registry/blocking.h"

namespace pinion {

namespace {

/// A domain outlives its run.
Clock& process_clock() {
  static RealClock clock;
  return clock;
}

}  // namespace

int DomainTable::open(const std::string& device, const std::string& nic, Error& error) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (int number = 0; number < count(); ++number) {
    DomainSlot& found = slot(number);
    if (found.open || found.device_name.empty() || found.device_name != device || found.nic != nic) continue;
    found.open = true;
    found.meter.restart();
    return number;
  }
  DeviceResult made = make_device(device, nic);
  error = made.error;
  return error ? -1 : add_locked(std::move(made.device), error, device, nic);
}

int DomainTable::add(std::unique_ptr<Device> device, Error& error, const std::string& name,
                     const std::string& nic) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  return add_locked(std::move(device), error, name, nic);
}

int DomainTable::add_locked(std::unique_ptr<Device> device, Error& error, const std::string& name,
                            const std::string& nic) {
  const int number = count_.load(std::memory_order_relaxed);
  if (number == kMostDomains) {
    error = Error::make(ENOSPC, "one process can have %d domains, counting one of each kind that was closed",
                        kMostDomains);
    return -1;
  }
  DomainSlot& added = new_slot(std::move(device));
  added.device_name = name;
  added.nic = nic;
  note_effects(*added.device);
  equip_(added);
  slots_[static_cast<std::size_t>(number)] = &added;
  count_.store(number + 1, std::memory_order_release);
  return number;
}

void DomainTable::note_effects(const Device& device) {
  const DeviceCapabilities can = device.capabilities();
  if (can.hides_from_children || can.slow_to_fork) all_go_at_fork_.store(true, std::memory_order_relaxed);
  if (can.splits_mappings) splits_mappings_.store(true, std::memory_order_relaxed);
}

int DomainTable::borrow(std::unique_ptr<Device> device, Error& error) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (int number = 0; number < count(); ++number) {
    DomainSlot& found = slot(number);
    if (found.open || found.borrowed == nullptr) continue;
    note_effects(*device);
    found.borrowed->lend(std::move(device));
    found.domain->device_changed();
    found.open = true;
    found.meter.restart();
    return number;
  }
  auto borrowed = std::make_unique<BorrowedDevice>(std::move(device));
  BorrowedDevice* const lent = borrowed.get();
  const int number = add_locked(std::move(borrowed), error, {}, {});
  if (number >= 0) slot(number).borrowed = lent;
  return number;
}

Error DomainTable::close(int number) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  // The helper takes it out, and is then in no device call of its own for the domain.
  closing_.store(number, std::memory_order_seq_cst);
  bell_.wake();
  closing_.wait(number, std::memory_order_acquire);
  DomainSlot& closed = slot(number);
  // Other threads may be deregistering victims that they found here.
  closed.domain->await_leaving(monotonic_now() + kRoomPatience);
  if (const std::size_t leased = closed.domain->region_count())
    return Error::make(
        EBUSY, "%zu regions of the domain are under lease: release all leases before closing it", leased);
  closed.open = false;
  if (closed.borrowed != nullptr) closed.borrowed->lend(nullptr);
  return {};
}

void DomainTable::emptied() {
  closing_.store(-1, std::memory_order_release);
  closing_.notify_all();
}

void DomainTable::reopen(int number) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  slot(number).open = true;
  slot(number).domain->device_changed();
  slot(number).meter.restart();
}

std::size_t DomainTable::registered_bytes() const {
  std::size_t bytes = 0;
  for_each([&](const DomainSlot& slot) { bytes += slot.domain->registered_bytes(); });
  return bytes;
}

DomainSlot& DomainTable::new_slot(std::unique_ptr<Device> device) {
  if (memory_.slots_used == memory_.slots.size()) {
    memory_.slots.push_back(
        std::make_unique<DomainSlot>(static_cast<int>(memory_.slots_used), memory_.meter));
    DomainSlot& slot = *memory_.slots.back();
    slot.domain = std::make_unique<Domain>(*device, budget_, brackets_, process_clock(), &slot.meter);
    slot.kept.domain = slot.domain.get();
  }
  DomainSlot& slot = *memory_.slots[memory_.slots_used++];
  slot.domain->reopen(*device, budget_);
  slot.device = std::move(device);
  slot.borrowed = nullptr;
  slot.open = true;
  slot.meter.start(process_clock().now());
  new (&slot.by_helper) ThreadCounters;
  slot.modelled_busy_seconds = 0;
  slot.kept.costs = {};
  return slot;
}

// ---- forks ----

std::unique_lock<Mutex> DomainTable::lock_for_fork(bool patient) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (auto left = ForkGate::kPatience; patient && !lock && left.count() > 0; --left) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

void DomainTable::abandon_after_fork() {
  for_each([](DomainSlot& slot) { slot.domain->device().abandon_after_fork(); });
}

// ---- after the run ----

void DomainTable::drop_device(DomainSlot& slot) {
  if (!slot.device || slot.domain->region_count() > 0) return;
  slot.modelled_busy_seconds = slot.device->modelled_busy_seconds();
  slot.device.reset();
}

void DomainTable::give_memory() {
  if (given_) return;
  for (std::size_t i = 0; i < memory_.slots_used; ++i) {
    const DomainSlot& slot = *memory_.slots[i];
    if (slot.device || slot.domain->region_count() > 0) return;
  }
  given_ = true;
  RunMemory::give(memory_);
}

void DomainTable::drop_devices() {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for_each(drop_device);
  give_memory();
}

void DomainTable::release_after_run(int number, RegionRef ref) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  Domain& domain = this->domain(number);
  domain.release(ref.region);
  while (Region* doomed = domain.begin_reap()) retire_claimed(domain, doomed, Actor::application);
  if (Region* idle = domain.begin_retire(ref)) retire_claimed(domain, idle, Actor::application);
  drop_device(slot(number));
  give_memory();
}

}  // namespace pinion
