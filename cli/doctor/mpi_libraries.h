// The MPI library that a command's programs lie beside, and the UCX and libfabric that it loads. pip, conda
// and Spack put launcher, interpreter and MPI under one prefix, with libraries that the loader does not find
// by their bare names. Loads the MPI in a process of its own. Ordinary code, one thread.
#pragma once

#include <string>

#include "cli/command.h"

namespace pinion::cli {

struct MpiLibraries {
  std::string ucx = "libucp.so.0", libfabric = "libfabric.so.1";  ///< as dlopen() takes them
  bool may_be_open_mpi = true;
};

/// Looks at PREFIX/lib of the programs PREFIX/bin/NAME that the command names.
MpiLibraries mpi_libraries(const CommandLine& command);

}  // namespace pinion::cli
