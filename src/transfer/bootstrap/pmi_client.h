// A client of PMI-1, the line protocol of hydra and other launchers: processes of a job put texts under keys,
// meet in a barrier, and get each other's texts. The launcher's answers are checked; each call ends by the
// time given at the start.
//
// The descriptor is the process's only one (PMI_FD): an MPI library that needs it must not be in the process.
// One thread at a time.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/error.h"

namespace pinion::transfer {

class PmiClient {
 public:
  /// `descriptor` is a socket, and stays the caller's.
  PmiClient(int descriptor, Time end) : descriptor_(descriptor), end_(end) {}

  Error begin();
  /// Keys and values have neither spaces nor line ends.
  Error put(const std::string& key, const std::string& value);
  /// All processes of the job come here; then each can get the values that the others have put before.
  Error barrier();
  Error get(const std::string& key, std::string& value);
  /// The launcher then treats the process as one without PMI, and the descriptor becomes useless.
  Error finish();

  /// Most bytes of a value.
  std::size_t most() const { return most_; }

 private:
  Error ask(const std::string& request, const char* answer, std::string& line);
  Error write(const std::string& text);
  Error read(std::string& line);
  Error await(short event);

  const int descriptor_;
  const Time end_;
  std::size_t most_ = 0;
  std::string space_;     ///< name of the job's keys
  std::string received_;  ///< behind the last line
};

}  // namespace pinion::transfer
