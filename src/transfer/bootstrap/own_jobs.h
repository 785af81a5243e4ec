// The jobs that this process is in, by directory and rank. Several may meet in one directory at a time. All
// processes of a job open and close theirs in the same order, so each finds the same lowest number free.
//
// Owns a table of the process's. Ordinary code, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

/// A job's number in its directory, while the object lives.
class OwnJob {
 public:
  OwnJob(const std::string& directory, Peer rank);
  ~OwnJob();
  OwnJob(const OwnJob&) = delete;
  OwnJob& operator=(const OwnJob&) = delete;

  unsigned number() const { return number_; }
  /// The tokens of the cards of the job that had this number before: their owners may not have left yet.
  std::vector<std::uint64_t> tokens_before() const;
  void note_tokens(std::vector<std::uint64_t> tokens);

 private:
  const std::string key_;
  unsigned number_ = 0;
};

}  // namespace pinion::transfer
