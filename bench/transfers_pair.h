// The two processes of `pinion bench transfers`: forked by the command, they move messages under one protocol
// and one retention, and report their figures through a pipe. Single-threaded; the command has no thread yet,
// and has loaded no libfabric.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace pinion::cli {

enum class TransferPages { ordinary, transparent, hugetlb };

/// A row of the table of subjects (bench_transfers_pair.cpp).
struct TransferSubject {
  const char* name;
  const char* retention;
  int protocol;         ///< transfer::Protocol; negative: plain puts into memory that is registered already
  bool prepared;        ///< the memory is registered by pinion_prepare() before its first transfer
  TransferPages pages;  ///< of the buffers; each begins a page of its own
};
const std::vector<TransferSubject>& transfer_subjects();

struct TransferCase {
  std::size_t bytes = 0;
  bool reuse = true;
};
std::string name_of(const TransferCase& one);
/// Buffers on hugepages: used again, and of a quarter of a hugepage at least.
bool measures(const TransferSubject& subject, const TransferCase& one);

/// Messages of a case, in each of its two parts; the program for MPI peers counts by the same rule.
unsigned transfer_messages(const TransferCase& one);

/// The network between the two processes.
struct TransferNetwork {
  std::string provider;              ///< of libfabric; empty: the endpoint chooses
  double wire_bytes_per_second = 0;  ///< an emulated wire (bench_wire.h) instead; 0: none
  Duration pause = 0;                ///< after each message, of which then one is under way
};

struct TransferFigures {
  std::string provider;
  std::map<std::string, std::map<std::string, double>> cases;  ///< by case and metric
};

/// Throws Failure with the reason: no such provider, no hugepages, a transfer that failed, wrong data.
TransferFigures measure_transfers(const TransferSubject& subject, const TransferNetwork& network,
                                  const std::vector<TransferCase>& cases);

}  // namespace pinion::cli
