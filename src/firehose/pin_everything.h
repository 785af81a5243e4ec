// Strategy `pin-everything`: each process registers its segments when it opens, and gives their keys to all
// peers. A put or get is one operation of the provider's. The segments stay mapped until the job closes: none
// is recalled.
//
// open(), close(): the thread that opens and closes. The rest: any thread; a mutex guards the keys that
// arrive, and readers see those of a peer once they are complete.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "firehose/messages.h"
#include "firehose/strategy.h"
#include "firehose/ways.h"
#include "process/peer_memory.h"

namespace pinion::firehose {

class PinEverything final : public Strategy {
 public:
  explicit PinEverything(Ways& ways);

  Error open() override;
  void close() override;
  void begin(std::span<Part* const> parts) override {
    for (Part* const part : parts) begin(*part);
  }
  void message(Peer from, const void* payload, std::size_t bytes) override;
  void add_to(struct pinion_firehose_statistics& out) const override;

 private:
  /// The keys of a peer's segments.
  struct Keys {
    std::vector<RemotePart> parts;
    std::atomic<bool> complete{false};
  };

  Error pin(Range pages, RemotePart& part);
  void begin(Part& part);

  Ways& ways_;
  std::vector<peer_memory::Hold> holds_;
  Mutex mutex_;  ///< guards incomplete keys
  const std::unique_ptr<Keys[]> keys_;
  std::atomic<std::uint64_t> bytes_{0}, pins_{0}, hits_{0};
};

}  // namespace pinion::firehose
