#include "intercept/cuda/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
// ThreadSanitizer sees the accesses of memcpy, and none of these instructions.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define PINION_WIDE_STORES
#include <immintrin.h>
#endif

namespace pinion::cuda {

namespace {

constexpr std::size_t kLine = 64;

#ifdef PINION_WIDE_STORES
// The target is aligned to a line, the size is a multiple of lines.
__attribute__((target("avx512f"))) void stream_512(char* to, const char* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
  _mm_sfence();
}

__attribute__((target("avx2"))) void stream_256(char* to, const char* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + kLine / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + kLine / 2), second);
  }
  _mm_sfence();
}
#endif

}  // namespace

StreamWidth widest_stream() {
#ifdef PINION_WIDE_STORES
  if (__builtin_cpu_supports("avx512f")) return StreamWidth::avx512;
  if (__builtin_cpu_supports("avx2")) return StreamWidth::avx2;
#endif
  return StreamWidth::none;
}

void stream_copy(StreamWidth width, void* to, const void* from, std::size_t bytes) {
#ifdef PINION_WIDE_STORES
  if (width != StreamWidth::none) {
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    const std::size_t over = reinterpret_cast<std::uintptr_t>(to) % kLine;
    const std::size_t head = over == 0 ? 0 : std::min(kLine - over, bytes);
    std::memcpy(target, source, head);
    const std::size_t body = (bytes - head) / kLine * kLine;
    (width == StreamWidth::avx512 ? stream_512 : stream_256)(target + head, source + head, body);
    std::memcpy(target + head + body, source + head + body, bytes - head - body);
    return;
  }
#endif
  static_cast<void>(width);
  std::memcpy(to, from, bytes);
}

void stream_copy(void* to, const void* from, std::size_t bytes) {
  static const StreamWidth widest = widest_stream();
  stream_copy(widest, to, from, bytes);
}

}  // namespace pinion::cuda
