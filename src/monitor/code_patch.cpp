#include "monitor/code_patch.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "base/loaded_objects.h"
#include "base/range.h"
#include "monitor/system_call.h"

namespace pinion {
namespace {

template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The parts that differ by processor: the landing pad to leave alone, the near branch, the far jump of a
// stub.

#if defined(__x86_64__)

constexpr std::size_t kStubBytes = 16;
constexpr std::size_t kReach = std::size_t{2} << 30;

}  // namespace

std::size_t landing_pad_bytes(const std::byte* code) {
  constexpr std::uint32_t kEndbr64 = 0xfa1e0ff3;
  return read_as<std::uint32_t>(code) == kEndbr64 ? 4 : 0;
}

namespace {

/// A patcher keeps threads out of the function while it writes the rest: by a jump to itself (UCX, for 50
/// ms), or by a breakpoint.
bool is_held(const std::byte* code) {
  constexpr std::uint16_t kJumpToItself = 0xfeeb;
  constexpr std::byte kBreakpoint{0xcc};
  return read_as<std::uint16_t>(code) == kJumpToItself || *code == kBreakpoint;
}

void encode_branch(std::byte* out, const std::byte* from, const std::byte* to) {
  const auto displacement = static_cast<std::int32_t>(to - (from + 5));
  out[0] = std::byte{0xe9};
  std::memcpy(out + 1, &displacement, sizeof displacement);
}

void encode_stub(std::byte* out, const void* target) {
  constexpr unsigned char kMovR11[] = {0x49, 0xbb};
  constexpr unsigned char kJmpR11[] = {0x41, 0xff, 0xe3};
  std::memcpy(out, kMovR11, sizeof kMovR11);
  std::memcpy(out + 2, &target, sizeof target);
  std::memcpy(out + 10, kJmpR11, sizeof kJmpR11);
}

/// One store of 16 bytes: a thread that fetches the instruction sees the old one or the new one.
void store_entry(std::byte* entry, const std::byte* content) {
  auto low = read_as<std::uint64_t>(entry), high = read_as<std::uint64_t>(entry + 8);
  bool stored = false;
  while (!stored) {
    asm volatile("lock cmpxchg16b %1"
                 : "=@ccz"(stored), "+m"(*reinterpret_cast<std::byte(*)[16]>(entry)), "+a"(low), "+d"(high)
                 : "b"(read_as<std::uint64_t>(content)), "c"(read_as<std::uint64_t>(content + 8))
                 : "memory");
  }
}

/// The length of the no-operation instruction at `code`, in the forms that fill the gap between functions; 0
/// where there is another.
std::size_t padding_bytes(const std::byte* code) {
  const auto byte = [code](std::size_t i) { return std::to_integer<unsigned>(code[i]); };
  std::size_t prefixes = 0;
  while (byte(prefixes) == 0x66 || byte(prefixes) == 0x2e) ++prefixes;
  if (byte(prefixes) == 0x90 || byte(prefixes) == 0xcc) return prefixes + 1;
  if (byte(prefixes) != 0x0f || byte(prefixes + 1) != 0x1f) return 0;
  switch (byte(prefixes + 2)) {  // the unused operand
    case 0x00:
      return prefixes + 3;
    case 0x40:
      return prefixes + 4;
    case 0x44:
      return prefixes + 5;
    case 0x80:
      return prefixes + 7;
    case 0x84:
      return prefixes + 8;
    default:
      return 0;
  }
}

#else

constexpr std::size_t kStubBytes = 16;
constexpr std::size_t kReach = std::size_t{128} << 20;
std::size_t padding_bytes(const std::byte*) { return 0; }

}  // namespace

std::size_t landing_pad_bytes(const std::byte* code) {
  constexpr std::uint32_t kBtiC = 0xd503245f;
  return read_as<std::uint32_t>(code) == kBtiC ? 4 : 0;
}

namespace {

/// A patcher keeps threads out of the function while it writes the rest: by a branch to itself, or by a
/// breakpoint.
bool is_held(const std::byte* code) {
  constexpr std::uint32_t kBranchToItself = 0x14000000, kBreakpoint = 0xd4200000;
  const auto word = read_as<std::uint32_t>(code);
  return word == kBranchToItself || (word & 0xffe0001f) == kBreakpoint;
}

void encode_branch(std::byte* out, const std::byte* from, const std::byte* to) {
  const std::uint32_t branch = 0x14000000u | (static_cast<std::uint32_t>((to - from) >> 2) & 0x03ffffffu);
  std::memcpy(out, &branch, sizeof branch);
}

void encode_stub(std::byte* out, const void* target) {
  constexpr std::uint32_t kLoadAndJump[] = {0x58000051,   // ldr x17, #8
                                            0xd61f0220};  // br x17
  std::memcpy(out, kLoadAndJump, sizeof kLoadAndJump);
  std::memcpy(out + 8, &target, sizeof target);
}

/// Stores the word or words that differ; only one does.
void store_entry(std::byte* entry, const std::byte* content) {
  for (std::size_t at = 0; at < 16; at += 4) {
    const auto word = read_as<std::uint32_t>(content + at);
    if (word != read_as<std::uint32_t>(entry + at)) {
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(entry + at), word, __ATOMIC_SEQ_CST);
    }
  }
}

#endif

/// Bytes from `code` on that may be overwritten: the function's own, and the padding behind it.
std::size_t room_at(const std::byte* code, std::size_t own_bytes, std::size_t wanted) {
  std::size_t room = own_bytes;
  while (room < wanted) {
    const std::size_t padding = padding_bytes(code + room);
    if (padding == 0) break;
    room += padding;
  }
  return room;
}

bool reaches(const std::byte* from, const std::byte* to) {
  const auto distance = to > from ? to - from : from - to;
  return static_cast<std::size_t>(distance) + page_size() < kReach;
}

/// Calls change() while the pages of [at, at + bytes) may be written; they stay executable for other threads.
template <class Change>
Error change_code(std::byte* at, std::size_t bytes, Change change) {
  const Range pages = Range::of(at, bytes).to_pages();
  void* const start = reinterpret_cast<void*>(pages.begin);
  // Bypasses libc, whose mprotect shows the hooks that other code is about to patch.
  const auto protect = [&](int protection) {
    return raw_system_call(SYS_mprotect, arguments_of(start, pages.bytes(), protection));
  };
  if (const long refused = protect(PROT_READ | PROT_WRITE | PROT_EXEC)) {
    const int code = static_cast<int>(-refused);
    return Error::make(code, "the system does not let code be patched: mprotect(writable, executable): %s",
                       std::strerror(code));
  }
  change();
  // If this failed the page would stay writable, which harms nothing but hardening: the patch is good either
  // way.
  static_cast<void>(protect(PROT_READ | PROT_EXEC));
  __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at + bytes));
  return {};
}

/// An executable page within a branch's reach of `code`, null if there is no room.
std::byte* map_page_near(const std::byte* code) {
  // Libraries are packed downwards from the top: below is more room, above is only the stack's.
  const Address center = page_floor(reinterpret_cast<Address>(code));
  const std::size_t step = std::size_t{1} << 20;
  for (const bool below : {true, false}) {
    for (std::size_t distance = step; distance < kReach - step; distance += step) {
      if (below && distance >= center) break;
      void* const wish = reinterpret_cast<void*>(below ? center - distance : center + distance);
      void* const page = mmap(wish, page_size(), PROT_READ | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (page == MAP_FAILED) continue;
      if (reaches(code, static_cast<std::byte*>(page))) return static_cast<std::byte*>(page);
      munmap(page, page_size());  // a kernel that takes the address for a mere hint
    }
  }
  return nullptr;
}

/// Room for a stub near `code`. Never given back: a thread may be about to run it.
std::byte* allocate_stub(const std::byte* code) {
  static std::byte* page = nullptr;
  static std::size_t used = 0;
  if (page == nullptr || used + kStubBytes > page_size() || !reaches(code, page)) {
    page = map_page_near(code);
    used = 0;
    if (page == nullptr) return nullptr;
  }
  std::byte* const stub = page + used;
  used += kStubBytes;
  return stub;
}

}  // namespace

#if defined(__x86_64__)

void* jump_target(const std::byte* code) {
  const auto byte = [code](std::size_t i) { return std::to_integer<unsigned>(code[i]); };
  if (byte(0) == 0xe9) {  // jmp rel32
    return const_cast<std::byte*>(code) + 5 + read_as<std::int32_t>(code + 1);
  }
  if (byte(0) == 0xff && byte(1) == 0x25) {  // jmp [rip + disp32]
    return read_as<void*>(code + 6 + read_as<std::int32_t>(code + 2));
  }
  // mov reg, imm64; jmp reg
  if ((byte(0) & 0xfe) != 0x48 || (byte(1) & 0xf8) != 0xb8) return nullptr;
  const bool high_register = (byte(0) & 1) != 0;
  const std::size_t jump = high_register ? 11 : 10;
  if (high_register && byte(10) != 0x41) return nullptr;
  if (byte(jump) != 0xff || byte(jump + 1) != (0xe0 | (byte(1) & 7))) return nullptr;
  return read_as<void*>(code + 2);
}

#else

void* jump_target(const std::byte* code) {
  const auto word = [code](std::size_t i) { return read_as<std::uint32_t>(code + 4 * i); };
  const auto jumps_to_register = [&](std::size_t i, std::uint32_t reg) {
    return word(i) == (0xd61f0000u | reg << 5);
  };
  if ((word(0) & 0xfc000000u) == 0x14000000u) {  // b imm26
    return const_cast<std::byte*>(code) + (static_cast<std::int32_t>(word(0) << 6) >> 4);
  }
  const std::uint32_t reg = word(0) & 0x1f;
  if ((word(0) & ~0x1fu) == 0x58000040u && jumps_to_register(1, reg)) {  // ldr reg, #8; br reg; .quad
    return read_as<void*>(code + 8);
  }
  // movz reg, #, lsl #; movk ...; br reg
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    if (i > 0 && jumps_to_register(i, reg)) return reinterpret_cast<void*>(value);
    const std::uint32_t opcode = word(i) & 0xff800000u;
    if (opcode != (i == 0 ? 0xd2800000u : 0xf2800000u) || (word(i) & 0x1f) != reg) return nullptr;
    value |= static_cast<std::uint64_t>(word(i) >> 5 & 0xffff) << (16 * (word(i) >> 21 & 3));
  }
  return nullptr;
}

#endif

Error CodePatch::aim(void* function, const char* name) {
  // Not by dladdr(), which looks at all symbols of the library: that was most of a start's instructions.
  const std::size_t bytes = function_bytes(function, name);
  if (bytes == 0) return Error::make(ENOENT, "no symbol gives the function's length");
  auto* const entry = static_cast<std::byte*>(function);
  entry_ = entry;
  if (is_held(entry) || is_held(entry + landing_pad_bytes(entry)))
    return Error::make(EAGAIN, "other code is patching the function now");
  displaced_target_ = jump_target(entry);
  const std::size_t offset = displaced_target_ == nullptr ? landing_pad_bytes(entry) : 0;
  if (offset > 0) displaced_target_ = jump_target(entry + offset);
  offset_ = offset;
  if (const std::size_t ours = level_at_entry(); ours < kLevels && !is_applied()) {
    used_.store(ours + 1, std::memory_order_release);
    applied_.store(true, std::memory_order_release);
  }
  const std::size_t wanted = offset + kBranchBytes;
  const std::size_t room = displaced_target_ == nullptr ? room_at(entry, bytes, wanted) : wanted;
  if (reinterpret_cast<Address>(entry) % kAlignment != 0 || room < wanted) {
    return Error::make(ENOTSUP, "the function (%zu bytes) has no room for a patch that is one atomic store",
                       bytes);
  }
  note_restored();
  std::memcpy(before_.data(), entry, kEntryBytes);
  if (displaced_target_ != nullptr) return {};
  if (own_code_known_ && own_code_ != before_) {
    return Error::make(ENOTSUP, "the function was patched by other code, in an unknown form");
  }
  own_code_ = before_;
  own_code_known_ = true;
  return {};
}

std::size_t CodePatch::level_at_entry() const {
  const auto* const target = static_cast<const std::byte*>(jump_target(entry_ + offset_));
  std::size_t level = 0;
  while (level < kLevels && (target == nullptr || levels_[level].stub.load() != target)) ++level;
  return level;
}

void CodePatch::note_restored() {
  if (!is_applied() || in_place()) return;
  const std::size_t level = level_at_entry();
  if (level < used_.load()) used_.store(level + 1, std::memory_order_release);
}

std::size_t CodePatch::level_wanted() const {
  const std::size_t used = used_.load();
  if (!is_applied() || displaced_target_ == nullptr) return 0;
  for (std::size_t level = 0; level < used; ++level)
    if (levels_[level].displaced.load() == displaced_target_) return level;  // its patch lies there again
  return used < kLevels ? used : kLevels - 1;
}

Error CodePatch::apply(const void* target) {
  const std::size_t wanted = level_wanted(), used = used_.load();
  Level& level = levels_[wanted];
  if (level.stub.load() == nullptr || level.displaced.load() != displaced_target_) {
    std::byte* const stub = allocate_stub(entry_);
    if (stub == nullptr) return Error::make(ENOMEM, "no free page within a branch's reach of the function");
    if (Error error = change_code(stub, kStubBytes, [&] { encode_stub(stub, target); })) return error;
    level.stub.store(stub);
    level.displaced.store(displaced_target_);
  }
  level.before = before_;
  Entry after = before_;
  encode_branch(after.data() + offset_, entry_ + offset_, level.stub.load());
  // Before the branch, by which calls may come at once.
  used_.store(wanted + 1, std::memory_order_release);
  if (Error error = write(after)) {
    used_.store(used, std::memory_order_release);
    return error;
  }
  applied_.store(true, std::memory_order_release);
  return {};
}

Error CodePatch::restore() {
  if (!in_place()) return Error::make(EBUSY, "the function was patched by other code since");
  if (Error error = write(levels_[used_.load() - 1].before)) return error;
  applied_.store(false,
                 std::memory_order_release);  // threads inside of the target go on by what is displaced
  return {};
}

Range CodePatch::pages() const {
  const std::byte* const entry = entry_;
  return entry == nullptr ? Range{} : Range::of(entry, kEntryBytes).to_pages();
}

bool CodePatch::in_place() const {
  if (!is_applied() || landing_pad_bytes(entry_) < offset_) return false;
  return level_at_entry() + 1 == used_.load(std::memory_order_acquire);
}

Error CodePatch::write(const Entry& content) {
  return change_code(entry_, kEntryBytes, [&] { store_entry(entry_, content.data()); });
}

}  // namespace pinion
