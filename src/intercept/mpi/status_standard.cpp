// What a status of the standard ABI tells: only its library knows where it has that. Any thread that may call
// MPI.
#include "intercept/mpi/library.h"

namespace pinion::mpi::standard {

std::uint64_t Status::bytes() const {
  Count bytes = 0;
  const auto byte = reinterpret_cast<Datatype>(Predefined::kByte);
  const bool told = library().get_count_large(this, byte, &bytes) == kSuccess && bytes > 0;
  return told ? static_cast<std::uint64_t>(bytes) : 0;
}

bool Status::cancelled() const {
  int flag = 0;
  return library().test_cancelled(this, &flag) == kSuccess && flag != 0;
}

}  // namespace pinion::mpi::standard
