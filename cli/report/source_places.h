// Call sites as source: function, file and line, from the debug information of the program and its libraries
// (in the file itself, or apart by build id or debug link), by elfutils' libdw. Without that: the nearest
// symbol and its offset, as the log names them. Reads files; one thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runlog/analysis.h"

namespace pinion::cli {

class SourcePlaces {
 public:
  SourcePlaces();
  ~SourcePlaces();

  /// "transpose() fft.c:120 < main() fft.c:88": the call and its caller. A call in an inlined function names
  /// the function around it. Before a line of Python only functions with debug information are named.
  std::string text(const runlog::CallSite& site);

 private:
  class Module;
  /// "transpose() fft.c:120"; empty where nothing is known.
  std::string frame_text(const runlog::SiteFrame& frame);

  std::map<std::string, std::unique_ptr<Module>> modules_;  ///< by path and build id
};

/// A symbol as the source has it: C++ without its parameters, and where it is long without the arguments of
/// templates; Fortran without its module's decoration.
std::string demangled(const std::string& symbol);

}  // namespace pinion::cli
