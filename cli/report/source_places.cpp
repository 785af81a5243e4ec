#include "cli/report/source_places.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/plain_file.h"

#ifdef PINION_HAS_LIBDW
#include <dwarf.h>

#include "cli/report/libdw.h"
#endif

namespace pinion::cli {

namespace {

/// Frames that a text names.
constexpr std::size_t kFramesShown = 2;
constexpr const char* kBetween = " < ";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// A function's name without the parameters at its end.
std::string without_parameters(const std::string& name) {
  if (name.empty() || name.back() != ')') return name;
  int depth = 0;
  for (std::size_t at = name.size(); at-- > 0;) {
    depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
    if (depth == 0) return name.substr(0, at);
  }
  return name;
}

/// A long name of C++ with its arguments of templates as "<...>".
std::string shortened(const std::string& name) {
  constexpr std::size_t kLong = 60;
  if (name.size() <= kLong || name.find("operator") != std::string::npos) return name;
  std::string out;
  int depth = 0;
  for (const char c : name) {
    if (c == '>' && depth > 0) --depth;
    if (depth == 0) out += c;
    if (c == '<' && ++depth == 1) out += "...";
  }
  return out;
}

/// The log's names of frames, innermost first.
std::vector<std::string> recorded_frames(const std::string& name) {
  std::vector<std::string> frames;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find(kBetween, at), name.size());
    frames.push_back(name.substr(at, end - at));
    at = end + std::string(kBetween).size();
  }
  return frames;
}

/// "transpose+0x84 (fft)" with its symbol demangled.
std::string recorded_text(const std::string& frame) {
  const std::size_t offset = frame.find("+0x");
  const bool has_symbol = offset != std::string::npos && frame.find(" (", offset) != std::string::npos;
  return has_symbol ? demangled(frame.substr(0, offset)) + frame.substr(offset) : frame;
}

bool is_interpreter(const runlog::SiteFrame& frame) {
  const std::string file = base_name(frame.path);
  return file.starts_with("python") || file.starts_with("libpython");
}

/// The caller of main().
bool is_libc(const runlog::SiteFrame& frame) { return base_name(frame.path).starts_with("libc.so"); }

/// "module MPI" of MPI.cpython-311-x86_64-linux-gnu.so; empty for other files.
std::string python_module(const runlog::SiteFrame& frame) {
  const std::string file = base_name(frame.path);
  return file.find(".cpython-") == std::string::npos ? "" : "module " + file.substr(0, file.find('.'));
}

}  // namespace

std::string demangled(const std::string& symbol) {
  if (symbol == "MAIN__") return "main program";
  int status = 0;
  char* const name = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (name != nullptr && symbol.starts_with("_Z")) {
    const std::string text = shortened(without_parameters(name));
    std::free(name);
    return text + "()";
  }
  std::free(name);
  // gfortran: a procedure of a module, and one of no module.
  if (const std::size_t in = symbol.find("_MOD_"); symbol.starts_with("__") && in != std::string::npos)
    return symbol.substr(2, in - 2) + "::" + symbol.substr(in + 5) + "()";
  if (symbol.size() > 1 && symbol.back() == '_' && symbol.front() != '_')
    return symbol.substr(0, symbol.size() - 1) + "()";
  return symbol;
}

#ifdef PINION_HAS_LIBDW

namespace {

/// One function at an address, and the line in it.
struct Place {
  std::string function, file;
  int line = 0;

  std::string text() const {
    return line > 0 ? fmt::format("{} {}:{}", function, base_name(file), line) : function;
  }
};

bool is_fortran(Dwarf_Die unit) {
  switch (libdw().dwarf_srclang(&unit)) {
    case DW_LANG_Fortran77:
    case DW_LANG_Fortran90:
    case DW_LANG_Fortran95:
    case DW_LANG_Fortran03:
    case DW_LANG_Fortran08:
      return true;
    default:
      return false;
  }
}

const char* text_of(Dwarf_Die* die, unsigned attribute) {
  Dwarf_Attribute found;
  return libdw().dwarf_formstring(libdw().dwarf_attr_integrate(die, attribute, &found));
}

std::string function_name(Dwarf_Die* die, Dwarf_Die unit) {
  const char* const name = libdw().dwarf_diename(die) ? libdw().dwarf_diename(die) : text_of(die, DW_AT_name);
  const char* const linkage = text_of(die, DW_AT_linkage_name);
  const bool mangled = linkage != nullptr && linkage[0] == '_' && (linkage[1] == 'Z' || is_fortran(unit));
  if (mangled) return demangled(linkage);
  return name == nullptr ? std::string("?") : shortened(name) + "()";
}

int number_of(Dwarf_Die* die, unsigned attribute) {
  Dwarf_Attribute found;
  Dwarf_Word value = 0;
  return libdw().dwarf_formudata(libdw().dwarf_attr(die, attribute, &found), &value) == 0
             ? static_cast<int>(value)
             : 0;
}

/// The file of the call that a function was inlined for.
std::string call_file(Dwarf_Die* die, Dwarf_Die unit) {
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (libdw().dwarf_getsrcfiles(&unit, &files, &count) != 0) return {};
  const char* const name = libdw().dwarf_filesrc(
      files, static_cast<std::size_t>(number_of(die, DW_AT_call_file)), nullptr, nullptr);
  return name == nullptr ? "" : name;
}

const Dwfl_Callbacks& callbacks() {
  static const Dwfl_Callbacks made = {libdw().dwfl_build_id_find_elf, libdw().dwfl_standard_find_debuginfo,
                                      libdw().dwfl_offline_section_address, nullptr};
  return made;
}

}  // namespace

/// A file of code, opened for its debug information and symbols.
class SourcePlaces::Module {
 public:
  explicit Module(const runlog::SiteFrame& frame) {
    if (!open(frame.path, frame.build_id)) open(debug_file(frame.build_id), frame.build_id);
  }
  ~Module() { close(); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The function at an address of the file; where it was inlined, the one around it too.
  std::string text(std::uint64_t file_address) {
    if (module_ == nullptr) return {};
    const std::vector<Place> places = places_at(file_address + bias_);
    if (places.empty()) return {};
    return places.size() == 1 ? places[0].text()
                              : fmt::format("{}, inlined in {}", places[0].text(), places[1].text());
  }

 private:
  static std::string debug_file(const std::string& build_id) {
    std::string hex;
    for (const unsigned char byte : build_id) hex += fmt::format("{:02x}", byte);
    return hex.size() < 3
               ? ""
               : fmt::format("/usr/lib/debug/.build-id/{}/{}.debug", hex.substr(0, 2), hex.substr(2));
  }

  /// False where the file is not there, or is another one by now.
  bool open(const std::string& path, const std::string& build_id) {
    close();
    if (!libdw().found) return false;
    const int file = open_named_file(path);  // the log names it: it may be a pipe
    if (file < 0) return false;
    dwfl_ = libdw().dwfl_begin(&callbacks());
    libdw().dwfl_report_begin(dwfl_);
    module_ = libdw().dwfl_report_offline(dwfl_, path.c_str(), path.c_str(), file);
    if (module_ == nullptr) ::close(file);
    libdw().dwfl_report_end(dwfl_, nullptr, nullptr);
    if (module_ == nullptr || libdw().dwfl_module_getelf(module_, &bias_) == nullptr || !has_id(build_id))
      close();
    return module_ != nullptr;
  }

  bool has_id(const std::string& build_id) {
    const unsigned char* bytes = nullptr;
    GElf_Addr address = 0;
    const int count = libdw().dwfl_module_build_id(module_, &bytes, &address);
    return build_id.empty() || (count > 0 && build_id == std::string(reinterpret_cast<const char*>(bytes),
                                                                     static_cast<std::size_t>(count)));
  }

  void close() {
    if (dwfl_ != nullptr) libdw().dwfl_end(dwfl_);
    dwfl_ = nullptr;
    module_ = nullptr;
  }

  std::vector<Place> places_at(Dwarf_Addr address) {
    Place place;
    if (Dwfl_Line* const line = libdw().dwfl_module_getsrc(module_, address)) {
      const char* const file = libdw().dwfl_lineinfo(line, nullptr, &place.line, nullptr, nullptr, nullptr);
      place.file = file == nullptr ? "" : file;
    }
    std::vector<Place> places = functions_at(address, place);
    if (!places.empty() || place.line == 0) return places;
    const char* const symbol = libdw().dwfl_module_addrname(module_, address);
    place.function = symbol == nullptr ? "?" : demangled(symbol);
    return {place};
  }

  /// Innermost first; `place` has the innermost one's line.
  std::vector<Place> functions_at(Dwarf_Addr address, Place place) {
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = libdw().dwfl_module_addrdie(module_, address, &bias);
    Dwarf_Die* scopes = nullptr;
    std::vector<Place> places;
    if (unit == nullptr || libdw().dwarf_getscopes(unit, address - bias, &scopes) <= 0) return places;
    Dwarf_Die innermost = scopes[0];
    std::free(scopes);
    scopes = nullptr;
    const int count = libdw().dwarf_getscopes_die(&innermost, &scopes);
    for (int i = 0; i < count; ++i) {
      const int tag = libdw().dwarf_tag(&scopes[i]);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      place.function = function_name(&scopes[i], *unit);
      places.push_back(place);
      if (tag == DW_TAG_subprogram) break;
      place.line = number_of(&scopes[i], DW_AT_call_line);
      place.file = call_file(&scopes[i], *unit);
    }
    std::free(scopes);
    return places;
  }

  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  GElf_Addr bias_ = 0;
};

std::string SourcePlaces::frame_text(const runlog::SiteFrame& frame) {
  std::unique_ptr<Module>& module = modules_[frame.path + '\0' + frame.build_id];
  if (!module) module = std::make_unique<Module>(frame);
  return module->text(frame.address);
}

#else

class SourcePlaces::Module {};

std::string SourcePlaces::frame_text(const runlog::SiteFrame&) { return {}; }

#endif

SourcePlaces::SourcePlaces() = default;
SourcePlaces::~SourcePlaces() = default;

std::string SourcePlaces::text(const runlog::CallSite& site) {
  const std::vector<std::string> recorded = recorded_frames(site.name);
  std::string text, last;
  for (std::size_t i = 0; i < kFramesShown; ++i) {
    const bool has_file = i < site.frames.size();
    if (has_file && (is_interpreter(site.frames[i]) || is_libc(site.frames[i]))) break;
    std::string frame = has_file ? frame_text(site.frames[i]) : "";
    if (frame.empty() && has_file) frame = python_module(site.frames[i]);
    if (frame.empty() && i < recorded.size() && site.python.empty()) frame = recorded_text(recorded[i]);
    if (!frame.empty() && frame != last) text += (text.empty() ? "" : kBetween) + frame;
    last = std::move(frame);
  }
  if (!site.python.empty())
    return text + (text.empty() ? "" : kBetween) + site.python +
           " (other lines with this call are the same site)";
  if (std::any_of(site.frames.begin(), site.frames.end(), is_interpreter))
    text += ", called from Python (all lines with this call are one site)";
  return text;
}

}  // namespace pinion::cli
