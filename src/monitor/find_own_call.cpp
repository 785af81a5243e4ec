// The part of own_calls.h that reads machine code.
#include <sys/syscall.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "monitor/own_calls.h"

namespace pinion {

namespace {

/// For a function that makes the system call of its first argument, whichever it is.
constexpr const char* kAnyCall = "any system call";

/// Between the number and the instruction: more than any inlined system call has.
constexpr std::size_t kBefore = 64;
static_assert(2 * kBefore <= kMostOwnCallBytes);

const char* name_of_call(std::uint64_t number) {
  switch (number) {
    case SYS_munmap:
      return "munmap";
    case SYS_mmap:
      return "mmap";
    case SYS_mremap:
      return "mremap";
    case SYS_madvise:
      return "madvise";
    case SYS_process_madvise:
      return "process_madvise";
    case SYS_mprotect:
      return "mprotect";
    case SYS_pkey_mprotect:
      return "pkey_mprotect";
    case SYS_shmat:
      return "shmat";
    case SYS_shmdt:
      return "shmdt";
    case SYS_remap_file_pages:
      return "remap_file_pages";
    default:
      return nullptr;
  }
}

// ---- Machine code ----

#if defined(__x86_64__)

constexpr std::size_t kStep = 1;  ///< where instructions may begin

unsigned byte_at(const std::byte* code, std::size_t i) { return std::to_integer<unsigned>(code[i]); }

bool is_system_call(const std::byte* code) { return byte_at(code, 0) == 0x0f && byte_at(code, 1) == 0x05; }

std::uint32_t number_at(const std::byte* code) {
  std::uint32_t number;
  std::memcpy(&number, code, sizeof number);
  return number;
}

struct Instruction {
  std::size_t bytes = 0;  ///< 0: none that stands between a number and its system call
  bool sets_rax = false;
};

/// The size of an operand: ModRM, SIB and displacement.
std::size_t operand_bytes(const std::byte* code) {
  const unsigned mode = byte_at(code, 0) >> 6, base = byte_at(code, 0) & 7;
  if (mode == 3) return 1;
  const bool has_index = base == 4;
  const bool no_base = mode == 0 && (has_index ? (byte_at(code, 1) & 7) == 5 : base == 5);
  const std::size_t displacement = mode == 1 ? 1 : mode == 2 || no_base ? 4 : 0;
  return 1 + (has_index ? 1 : 0) + displacement;
}

bool is_any(unsigned opcode, std::initializer_list<unsigned> of) {
  return std::find(of.begin(), of.end(), opcode) != of.end();
}

/// The instructions of two opcode bytes; `code` is the second.
Instruction long_instruction(const std::byte* code, unsigned rex) {
  const unsigned opcode = byte_at(code, 0), modrm = byte_at(code, 1);
  if (is_any(opcode, {0x10, 0x11, 0x1f, 0x28, 0x29, 0x6e, 0x6f, 0x7e, 0x7f, 0xd6}))
    return {1 + operand_bytes(code + 1), false};
  if (is_any(opcode, {0xb6, 0xb7, 0xbe, 0xbf}))
    return {1 + operand_bytes(code + 1), (modrm & 0x38) == 0 && (rex & 4) == 0};
  if (opcode >= 0x80 && opcode <= 0x8f) return {5, false};
  return {};
}

/// Moves and plain arithmetic: how a compiler, or a programmer, sets the arguments. Reads at most 16 bytes.
Instruction plain_instruction(const std::byte* code) {
  std::size_t at = 0;
  if (byte_at(code, at) == 0x66) ++at;
  const unsigned rex = (byte_at(code, at) & 0xf0) == 0x40 ? byte_at(code, at++) : 0;
  const unsigned opcode = byte_at(code, at++);
  const unsigned modrm = byte_at(code, at);
  const bool writes_rax_operand = (modrm & 0xc7) == 0xc0 && (rex & 1) == 0;
  const bool writes_rax_register = (modrm & 0x38) == 0 && (rex & 4) == 0;
  if (is_any(opcode, {0x01, 0x09, 0x21, 0x29, 0x31, 0x89}))  // to the operand
    return {at + operand_bytes(code + at), writes_rax_operand};
  if (is_any(opcode, {0x03, 0x0b, 0x23, 0x2b, 0x33, 0x63, 0x8b, 0x8d}))  // to the register
    return {at + operand_bytes(code + at), writes_rax_register};
  if (is_any(opcode, {0x39, 0x3b, 0x85})) return {at + operand_bytes(code + at), false};  // comparisons
  if (opcode == 0x83) return {at + operand_bytes(code + at) + 1, writes_rax_operand};
  if (is_any(opcode, {0x81, 0xc7})) return {at + operand_bytes(code + at) + 4, writes_rax_operand};
  if (opcode == 0x90) return {at, false};
  if (opcode >= 0xb8 && opcode <= 0xbf)
    return {at + ((rex & 8) != 0 ? 8u : 4u), opcode == 0xb8 && (rex & 1) == 0};
  if (opcode >= 0x50 && opcode <= 0x5f) return {at, opcode == 0x58 && (rex & 1) == 0};
  if (opcode >= 0x70 && opcode <= 0x7f) return {at + 1, false};
  if (opcode != 0x0f) return {};
  const Instruction next = long_instruction(code + at, rex);
  return next.bytes == 0 ? next : Instruction{at + next.bytes, next.sets_rax};
}

/// The number that the instruction at `code` puts into rax, and its length.
std::size_t loaded_number(const std::byte* code, std::uint32_t& number) {
  if (byte_at(code, 0) == 0xb8) {  // mov eax, imm32
    number = number_at(code + 1);
    return 5;
  }
  if (byte_at(code, 0) == 0x48 && byte_at(code, 1) == 0xc7 && byte_at(code, 2) == 0xc0) {  // mov rax, imm32
    number = number_at(code + 3);
    return 7;
  }
  if (byte_at(code, 0) == 0x6a && byte_at(code, 2) == 0x58) {  // push imm8; pop rax
    number = byte_at(code, 1);
    return 3;
  }
  return 0;
}

/// The length of an instruction that moves a function's first argument, edi or rdi, into rax; else 0.
std::size_t moved_argument(const std::byte* code) {
  if (byte_at(code, 0) == 0x89 && byte_at(code, 1) == 0xf8) return 2;
  const bool is_move = byte_at(code, 0) == 0x48 && ((byte_at(code, 1) == 0x89 && byte_at(code, 2) == 0xf8) ||
                                                    (byte_at(code, 1) == 0x63 && byte_at(code, 2) == 0xc7));
  return is_move ? 3 : 0;
}

bool leads_to(const std::byte* code, const std::byte* call) {
  // A copy, as the last bytes may be data that decode beyond the end of the code.
  const auto bytes = static_cast<std::size_t>(call - code);
  std::byte copy[kBefore + 16] = {};
  std::memcpy(copy, code, bytes);
  std::size_t at = 0;
  while (at < bytes) {
    const Instruction next = plain_instruction(copy + at);
    if (next.bytes == 0 || next.sets_rax) return false;
    at += next.bytes;
  }
  return at == bytes;
}

/// Finds the name of the system call instruction at `call`; reads memory from `begin` on only.
const char* name_at(const std::byte* begin, const std::byte* call) {
  const auto before = std::min(kBefore, static_cast<std::size_t>(call - begin));
  for (std::size_t distance = 2; distance <= before; ++distance) {
    const std::byte* const at = call - distance;
    std::uint32_t number = 0;
    std::size_t length = loaded_number(at, number);
    const char* name = length != 0 ? name_of_call(number) : nullptr;
    if (length == 0) {
      length = moved_argument(at);
      name = length != 0 ? kAnyCall : nullptr;
    }
    if (name != nullptr && length <= distance && leads_to(at + length, call)) return name;
  }
  return nullptr;
}

/// A system call instruction may begin in the block; the byte behind it is read too. All code is read this
/// way at each start, so it takes 16 bytes at once.
bool may_have_call(const std::byte* block) {
  const auto* const from = reinterpret_cast<const char*>(block);
  const auto are = [](const char* at, char byte) {
    return _mm_cmpeq_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)), _mm_set1_epi8(byte));
  };
  const auto begins_in = [&](std::size_t i) {
    return _mm_and_si128(are(from + i, 0x0f), are(from + i + 1, 0x05));
  };
  static_assert(kBefore == 64);
  const __m128i found =
      _mm_or_si128(_mm_or_si128(begins_in(0), begins_in(16)), _mm_or_si128(begins_in(32), begins_in(48)));
  return _mm_movemask_epi8(found) != 0;
}

#else

constexpr std::size_t kStep = 4;

std::uint32_t word_at(const std::byte* code) {
  std::uint32_t word;
  std::memcpy(&word, code, sizeof word);
  return word;
}

bool is_system_call(const std::byte* code) { return word_at(code) == 0xd4000001; }  // svc #0

const char* name_at(const std::byte* begin, const std::byte* call) {
  const auto before = std::min(kBefore, static_cast<std::size_t>(call - begin));
  for (std::size_t distance = 4; distance <= before; distance += 4) {
    const std::uint32_t word = word_at(call - distance);
    const bool moves_argument =
        word == 0xaa0003e8u || word == 0x2a0003e8u || word == 0x93407c08u;  // x0 to x8
    if (moves_argument) return kAnyCall;
    if ((word & 0x7fe0001fu) == 0x52800008u) return name_of_call(word >> 5 & 0xffff);  // mov w8 or x8, imm16
    const bool leaves = (word & 0x7c000000u) == 0x14000000u || (word & 0xfe000000u) == 0xd6000000u;
    if (leaves) return nullptr;
  }
  return nullptr;
}

bool may_have_call(const std::byte* block) {
  unsigned found = 0;
  for (std::size_t i = 0; i < kBefore; i += kStep) found |= static_cast<unsigned>(is_system_call(block + i));
  return found != 0;
}

#endif

}  // namespace

std::optional<OwnCall> find_own_call(const std::byte* code, std::size_t bytes) {
  constexpr std::size_t kCallBytes = 4;  // of which x86-64 has two
  const auto look = [&](std::size_t from, std::size_t to) -> std::optional<OwnCall> {
    for (std::size_t at = from; at < to && at + kCallBytes <= bytes; at += kStep) {
      if (!is_system_call(code + at)) continue;
      if (const char* const name = name_at(code, code + at)) return OwnCall{at, name};
    }
    return std::nullopt;
  };
  std::size_t at = 0;
  for (; at + kBefore + kCallBytes <= bytes; at += kBefore) {
    if (!may_have_call(code + at)) continue;
    if (const auto call = look(at, at + kBefore)) return call;
  }
  return look(at, bytes);
}

}  // namespace pinion
