// The kind of operation that a transfer belongs to: part of context signatures and of the log.
// Pure values. Numbers are part of the log's format: append only.
#pragma once

#include <cstdint>

namespace pinion {

enum class CallKind : std::uint8_t {
  none = 0,
  send = 1,
  receive = 2,
  send_nonblocking = 3,
  receive_nonblocking = 4,
  send_persistent = 5,
  receive_persistent = 6,
  sendrecv = 7,
  broadcast = 8,
  gather = 9,
  scatter = 10,
  allgather = 11,
  alltoall = 12,
  reduce = 13,
  allreduce = 14,
  reduce_scatter = 15,
  scan = 16,
  api = 17,
  put = 18,
  get = 19,
  accumulate = 20,
  window = 21,  ///< memory that others may read and write
  file_read = 22,
  file_write = 23,
  reg_mr = 24,   ///< a registration that the program asked for
  prepare = 25,  ///< memory that is registered ahead of its first transfer
  copy_to_gpu = 26,
  copy_from_gpu = 27,
};

inline const char* to_string(CallKind kind) {
  static const char* const names[] = {
      "none",      "send",           "receive",    "isend",   "irecv",     "send_init",   "recv_init",
      "sendrecv",  "bcast",          "gather",     "scatter", "allgather", "alltoall",    "reduce",
      "allreduce", "reduce_scatter", "scan",       "api",     "put",       "get",         "accumulate",
      "window",    "file_read",      "file_write", "reg_mr",  "prepare",   "copy_to_gpu", "copy_from_gpu"};
  const auto index = static_cast<unsigned>(kind);
  return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

}  // namespace pinion
