// Carries out the puts, gets and atomics of peers that come by message, within the memory that this process
// exposes, and answers them. Called inside the endpoint's progress; owns nothing, needs no lock.
#pragma once

#include <cstddef>

#include "firehose/data_message.h"
#include "firehose/ways.h"

namespace pinion::firehose {

class PeerService {
 public:
  explicit PeerService(Ways& ways) : ways_(ways) {}

  /// Takes a peer's put, get or atomic, or the answer to one of this process's.
  void serve(Peer from, const void* payload, std::size_t bytes);

 private:
  int serve_scattered(const DataMessage& message, char* data, DataMessage& answer) const;

  Ways& ways_;
};

}  // namespace pinion::firehose
