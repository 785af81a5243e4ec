// Carries out the puts, gets and atomics of peers that come by message, within the memory that this process
// exposes, and answers them. Owns the atomics that wait for the end of a change (waiting_atomics.h). serve()
// is called inside the endpoint's progress; flush() and gone() by any thread.
#pragma once

#include <cstddef>

#include "firehose/data_message.h"
#include "firehose/waiting_atomics.h"
#include "firehose/ways.h"

namespace pinion::firehose {

class PeerService {
 public:
  explicit PeerService(Ways& ways) : ways_(ways) {}

  /// Takes a peer's put, get or atomic, or the answer to one of this process's.
  void serve(Peer from, const void* payload, std::size_t bytes);
  /// Tries the atomics again whose memory was changing. True: none waits.
  bool flush();
  void gone(Peer peer) { waiting_.drop(peer); }

 private:
  bool serve_atomic(Peer from, const DataMessage& message) const;
  void answer_to(Peer to, const DataMessage& answer) const;
  int serve_scattered(const DataMessage& message, char* data, DataMessage& answer) const;

  Ways& ways_;
  WaitingAtomics waiting_;
};

}  // namespace pinion::firehose
