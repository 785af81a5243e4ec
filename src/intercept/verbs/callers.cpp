#include "intercept/verbs/callers.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "callsite/call_site.h"

namespace pinion::verbs {

namespace {

/// The name of the file with this code, without its directory; empty where it is unknown.
std::string_view file_of(Address return_address) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(return_address), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string_view file = info.dli_fname;
  return file.substr(file.rfind('/') + 1);
}

bool is_cache(std::string_view name) {
  for (const std::string_view library :
       {"libuct", "libucm.", "libfabric.", "mca_", "libmca_", "libopen-pal.", "libmpi."})
    if (name.starts_with(library)) return true;
  return name.ends_with("-fi.so");  // a provider of libfabric, as a plugin
}

// An address of the upper half is none of a program's: its top bit is free for the answer.
constexpr Address kYes = ~(~Address{0} >> 1);
constinit std::array<std::atomic<Address>, 256> answers{};
constinit std::atomic<std::uint32_t> generation_of_answers{0};

/// Other code may be where code was unmapped. An answer that another thread gives meanwhile is of code that
/// is on its stack, and right.
void forget_the_unmapped() {
  const std::uint32_t now = code_generation();
  if (generation_of_answers.exchange(now, std::memory_order_relaxed) == now) return;
  for (auto& answer : answers) answer.store(0, std::memory_order_relaxed);
}

}  // namespace

bool caches_itself(Address return_address) {
  forget_the_unmapped();
  std::atomic<Address>& answer = answers[(return_address * 0x9E3779B97F4A7C15ull) >> 56];
  const Address known = answer.load(std::memory_order_relaxed);
  if ((known & ~kYes) == return_address) return (known & kYes) != 0;
  const bool yes = is_cache(file_of(return_address));
  answer.store(return_address | (yes ? kYes : 0), std::memory_order_relaxed);
  return yes;
}

bool is_ucx(Address return_address) { return file_of(return_address).starts_with("libuct"); }

}  // namespace pinion::verbs
