// A transferring device that is a real kernel RDMA stack: registrations by the verbs device, in the
// protection domain of a queue pair. It writes from memory to the wire by the local key, and back by the
// remote one.
//
// Owns the queue pair. Any thread; a mutex for the transfers.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device/verbs/verbs.h"
#include "queue_pair.h"
#include "support/transfer_device.h"

namespace pinion::test {

class VerbsTransferDevice final : public TransferDevice {
 public:
  static constexpr const char* kMissing = "no RDMA device here";

  VerbsTransferDevice() {
    VerbsDeviceResult made = make_verbs_device(pair_.pd());
    if (made.error) {
      ADD_FAILURE() << made.error.message;
      std::abort();
    }
    device_ = std::move(made.device);
  }

  static bool available() {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    if (devices != nullptr) ibv_free_device_list(devices);
    return count > 0;
  }

  const char* name() const override { return "verbs"; }
  std::string description() const override { return device_->description(); }

 private:
  Error pin(Pinned& pinned) override {
    const Registration made = device_->register_range(pinned.pages, Access::all, Actor::application);
    if (!made.error) pinned.by = {made.key.handle, made.key.lkey, made.key.remote_key};
    return made.error;
  }
  void unpin(const Pinned& pinned) override {
    static_cast<void>(device_->deregister({pinned.by[0]}, Actor::application));
  }

  int transfer(const Pinned& pinned, Range range, const Wire& wire, std::size_t position,
               bool send) override {
    const std::lock_guard lock(transfers_);
    ibv_mr* const far =
        ibv_reg_mr(pair_.pd(), wire.data(), wire.bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (far == nullptr) return errno;
    void* const near = reinterpret_cast<void*>(range.begin);
    const auto bytes = static_cast<std::uint32_t>(range.bytes());
    const auto lkey = static_cast<std::uint32_t>(pinned.by[1]);
    const auto rkey = static_cast<std::uint32_t>(pinned.by[2]);
    const ibv_wc_status status = send ? pair_.write(near, lkey, wire.data() + position, far->rkey, bytes)
                                      : pair_.write(wire.data() + position, far->lkey, near, rkey, bytes);
    ibv_dereg_mr(far);
    return status == IBV_WC_SUCCESS ? 0 : EIO;
  }

  LoopedQueuePair pair_;
  std::unique_ptr<Device> device_;  // registers in the pair's protection domain
  std::mutex transfers_;
};

}  // namespace pinion::test
