#include "callsite/python_place.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/own_loading.h"
#include "base/range.h"
#include "monitor/own_process.h"

namespace pinion {

namespace {

/// Offsets that differ between versions.
struct Layout {
  unsigned minor;
  unsigned thread_frame;                 ///< PyThreadState: of its frame, or of a holder of it
  int held_frame;                        ///< of the frame in its holder; negative: there is no holder
  unsigned code, previous, instruction;  ///< _PyInterpreterFrame
  unsigned first_line;                   ///< PyCodeObject
  unsigned characters;                   ///< PyASCIIObject: its size
};
constexpr Layout kLayouts[] = {{11, 56, 8, 32, 48, 56, 72, 48},
                               {12, 56, 0, 0, 8, 56, 68, 40},
                               {13, 72, -1, 0, 8, 56, 68, 40},
                               {14, 72, -1, 0, 8, 56, 68, 40}};

// All of them have these.
constexpr unsigned kType = 8, kSize = 16;                            // PyVarObject
constexpr unsigned kFile = 112, kQualifiedName = 128, kLines = 136;  // PyCodeObject
constexpr unsigned kBytes = 32;                                      // PyBytesObject
constexpr unsigned kBasicSize = 32, kItemSize = 40;                  // PyTypeObject
constexpr unsigned kUnit = 2;                                        // an instruction, in bytes
constexpr Address kTags = 7;                                         // of references in frames, since 3.14

constexpr const char* kTrampoline = "<shim>";  // the file of frames in which C calls Python, in 3.12

constexpr int kMostFrames = 32;
constexpr std::uint64_t kMostLines = 1 << 20;  // of a table, in bytes

struct Interpreter {
  Layout layout;
  void* (*thread_state)();
  Address code_type, text_type, bytes_type;
  Address instructions;  ///< offset in a PyCodeObject
};
constinit Interpreter g_python{};
constinit std::atomic<bool> g_found{false};

bool read_bytes(Address from, void* to, std::size_t bytes) {
  return read_memory(from, to, bytes) == static_cast<long>(bytes);
}

template <class Value>
bool read_field(Address from, Value& value) {
  return from >= page_size() && read_bytes(from, &value, sizeof value);
}

bool has_type(Address object, Address type) {
  Address found = 0;
  return read_field(object + kType, found) && found == type;
}

/// A string of ASCII, or its end where it is longer. Other text is refused: its characters lie elsewhere.
template <std::size_t N>
bool read_text(Address object, char (&text)[N]) {
  std::uint64_t length = 0;
  if (!has_type(object, g_python.text_type) || !read_field(object + kSize, length) || length > 4096)
    return false;
  const std::uint64_t shown = std::min<std::uint64_t>(length, N - 1);
  if (!read_bytes(object + g_python.layout.characters + (length - shown), text, shown + 1)) return false;
  return text[shown] == 0 && std::all_of(text, text + shown, [](char c) { return c >= ' ' && c < 127; });
}

/// The bytes of a table, read piece by piece.
class Table {
 public:
  Table(Address begin, std::uint64_t size) : at_(begin), end_(begin + size) {}
  /// Returns the next byte, which stays where it is; negative: the end.
  int peek() {
    if (place_ == held_) {
      const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - at_, sizeof piece_));
      if (piece == 0 || !read_bytes(at_, piece_, piece)) return -1;
      at_ += piece;
      held_ = piece;
      place_ = 0;
    }
    return piece_[place_];
  }
  int take() {
    const int byte = peek();
    place_ += byte >= 0;
    return byte;
  }
  /// Takes a number of six bits a byte, the lowest first, whose lowest bit is its sign.
  std::int64_t take_signed() {
    std::uint64_t number = 0;
    int byte = 0x40;
    for (unsigned shift = 0; byte >= 0 && (byte & 0x40) != 0 && shift < 36; shift += 6) {
      byte = take();
      if (byte >= 0) number |= static_cast<std::uint64_t>(byte & 0x3f) << shift;
    }
    const auto size = static_cast<std::int64_t>(number >> 1);
    return (number & 1) != 0 ? -size : size;
  }

 private:
  Address at_, end_;
  std::size_t place_ = 0, held_ = 0;
  unsigned char piece_[256];
};

/// Returns the line of an instruction by the code's table of locations (PEP 626, as of 3.11); 0: none.
std::int64_t line_of(Table table, std::uint64_t unit, std::int64_t line) {
  enum Kind { one_line = 10, no_columns = 13, long_form = 14, none = 15 };
  constexpr int kBegins = 0x80;
  for (std::uint64_t end = 0;;) {
    const int head = table.take();
    if (head < 0 || (head & kBegins) == 0) return 0;
    const int kind = (head >> 3) & 15;
    if (kind == no_columns || kind == long_form) {
      line += table.take_signed();
    } else if (kind >= one_line && kind < no_columns) {
      line += kind - one_line;
    }
    end += static_cast<std::uint64_t>(head & 7) + 1;
    if (unit < end) return kind == none ? 0 : line;
    while (table.peek() >= 0 && (table.peek() & kBegins) == 0) table.take();
  }
}

/// Knows installed packages and Python's own library.
bool is_of_library(std::string_view file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3"})
    if (file.find(part) != std::string_view::npos) return true;
  return file.starts_with("<frozen");
}

struct Frame {
  Address code, previous, instruction;
};

bool read_frame(Address address, Frame& frame) {
  const Layout& layout = g_python.layout;
  return read_field(address + layout.code, frame.code) &&
         read_field(address + layout.previous, frame.previous) &&
         read_field(address + layout.instruction, frame.instruction);
}

/// Writes the frame's place. False: it has none. `of_library`: what is_of_library() says of its file.
bool write_place(const Frame& frame, char (&text)[kPythonPlaceBytes], bool& of_library) {
  const Address code = frame.code & ~kTags;
  char file[256], function[48];
  Address file_name = 0, name = 0, lines = 0;
  std::int32_t first_line = 0;
  std::uint64_t size = 0;
  if (!has_type(code, g_python.code_type) || !read_field(code + kFile, file_name) ||
      !read_field(code + kQualifiedName, name) || !read_field(code + kLines, lines) ||
      !read_field(code + g_python.layout.first_line, first_line) || !has_type(lines, g_python.bytes_type) ||
      !read_field(lines + kSize, size))
    return false;
  if (!read_text(file_name, file)) std::strcpy(file, "?");
  if (std::strcmp(file, kTrampoline) == 0) return false;
  if (!read_text(name, function)) std::strcpy(function, "?");
  of_library = is_of_library(file);
  const char* const slash = std::strrchr(file, '/');
  const std::uint64_t unit = (frame.instruction - (code + g_python.instructions)) / kUnit;
  const auto line =
      static_cast<long long>(line_of({lines + kBytes, std::min(size, kMostLines)}, unit, first_line));
  const char* const shown = slash != nullptr ? slash + 1 : file;
  return std::snprintf(text, sizeof text, "%.40s:%lld in %s", shown, line, function) > 0;
}

void write_innermost(Address thread, char (&text)[kPythonPlaceBytes]) {
  const Layout& layout = g_python.layout;
  Address at = 0;
  if (!read_field(thread + layout.thread_frame, at)) return;
  if (layout.held_frame >= 0 && !read_field(at + static_cast<unsigned>(layout.held_frame), at)) return;
  Frame frame{};
  for (int i = 0; i < kMostFrames && at != 0 && read_frame(at, frame); ++i, at = frame.previous) {
    char place[kPythonPlaceBytes];
    bool of_library = false;
    // Frames without a place stand where C calls Python.
    if (!write_place(frame, place, of_library)) continue;
    if (text[0] == 0 || !of_library) std::memcpy(text, place, sizeof text);
    if (!of_library) return;
  }
}

template <class Pointer>
bool look_up(const char* name, Pointer& pointer) {
  void* const symbol = ::dlsym(RTLD_DEFAULT, name);
  static_assert(sizeof symbol == sizeof pointer);
  std::memcpy(&pointer, &symbol, sizeof pointer);
  return symbol != nullptr;
}

/// Keeps the interpreter mapped: it is asked for as long as the process lives.
bool keep_mapped(void* (*function)()) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(function), &info) == 0) return false;
  load_library(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  return true;
}

}  // namespace

void find_python() {
  if (g_found.load(std::memory_order_relaxed)) return;
  const char* (*version)() = nullptr;
  if (!look_up("Py_GetVersion", version)) return;
  const char* const text = version();
  unsigned minor = 0;
  // Objects of builds without the lock begin otherwise.
  if (std::sscanf(text, "3.%u", &minor) != 1 || std::strstr(text, "free-threading") != nullptr) return;
  const auto* const layout = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                          [&](const Layout& l) { return l.minor == minor; });
  Interpreter found{};
  std::uint64_t item = 0;
  if (layout == std::end(kLayouts) || !look_up("PyGILState_GetThisThreadState", found.thread_state) ||
      !look_up("PyCode_Type", found.code_type) || !look_up("PyUnicode_Type", found.text_type) ||
      !look_up("PyBytes_Type", found.bytes_type) ||
      !read_field(found.code_type + kBasicSize, found.instructions) ||
      !read_field(found.code_type + kItemSize, item) || item != kUnit || !keep_mapped(found.thread_state))
    return;
  found.layout = *layout;
  g_python = found;
  g_found.store(true, std::memory_order_release);
}

void python_place(char (&text)[kPythonPlaceBytes]) {
  text[0] = 0;
  if (!g_found.load(std::memory_order_acquire)) return;
  const int before = errno;
  if (void* const thread = g_python.thread_state()) write_innermost(reinterpret_cast<Address>(thread), text);
  errno = before;
}

}  // namespace pinion
