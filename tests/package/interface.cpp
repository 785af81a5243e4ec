// The C++ interface: its values when they are moved, refused and ended. Prints `interface: verified`,
// or the lines that do not hold.
#include <cerrno>
#include <cstdio>
#include <pinion/pinion.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, int line, const char* text) {
  if (holds) return;
  std::printf("interface.cpp:%d: %s\n", line, text);
  ++failures;
}
#define EXPECT(...) expect(static_cast<bool>(__VA_ARGS__), __LINE__, #__VA_ARGS__)

static_assert(!std::is_copy_constructible_v<pinion::lease> &&
              std::is_nothrow_move_constructible_v<pinion::lease>);
static_assert(!std::is_copy_constructible_v<pinion::domain> &&
              std::is_nothrow_move_constructible_v<pinion::domain>);
static_assert(!std::is_copy_assignable_v<pinion::session> &&
              std::is_nothrow_move_assignable_v<pinion::session>);

constexpr std::size_t kBytes = 1 << 20;

template <class Call>
std::string thrown_by(Call call, int code) {
  try {
    call();
  } catch (const pinion::error& error) {
    return error.code() == std::error_code(code, std::generic_category()) ? error.what() : "";
  }
  return "nothing thrown";
}

void constructors_throw() {
  EXPECT(thrown_by([] { pinion::session session("limit=much"); }, EINVAL).find("'much'") !=
         std::string::npos);
  EXPECT(thrown_by([] { pinion::domain domain; }, ESHUTDOWN).find("start") != std::string::npos);
}

void leases(pinion::domain& domain, std::vector<char>& memory) {
  EXPECT(!pinion::lease());
  EXPECT(domain.try_acquire(memory.data(), kBytes, PINION_ACCESS_WRITE).error() == EAGAIN);
  auto first = domain.acquire(memory.data(), kBytes, PINION_ACCESS_WRITE);
  EXPECT(first && first.error() == 0);
  EXPECT(first.keys() && first.keys()->bytes >= kBytes);
  EXPECT(domain.close() == EBUSY);  // a lease is out

  pinion::lease second = std::move(first);
  EXPECT(second && !first && !first.keys());
  second = pinion::lease();  // the old one ends with the temporary
  EXPECT(!second && second.error() == ENODATA);
  second.release();
  second.release();

  auto kept = domain.try_acquire(memory.data(), kBytes, PINION_ACCESS_WRITE);
  EXPECT(kept);  // retention leave-pinned: registered since the first
  EXPECT(!domain.acquire(memory.data(), 8 * kBytes, PINION_ACCESS_WRITE));  // beyond the limit
  EXPECT(domain.statistics().hits == 1 && domain.statistics().bounced == 1);
}

void preparations(pinion::domain& domain, std::vector<char>& memory) {
  {
    auto prepared = domain.prepare({{memory.data(), kBytes}}, PINION_ACCESS_WRITE);
    EXPECT(prepared.wait(std::chrono::minutes(5)) == 0);
    EXPECT(prepared.state().error == 0 && prepared.state().prepared_bytes >= kBytes);
    EXPECT(domain.close() == EBUSY);
  }
  pinion::memory_change change(memory.data(), kBytes);
  EXPECT(!domain.try_acquire(memory.data(), kBytes, PINION_ACCESS_WRITE));
}

}  // namespace

int main() {
  constructors_throw();
  pinion::session session("retention=leave-pinned,device=emulated,nic=none,limit=4M");
  pinion::session moved = std::move(session);
  EXPECT(thrown_by([] { pinion::domain domain("no-such-device"); }, EINVAL).find("no-such-device") !=
         std::string::npos);
  std::vector<char> memory(8 * kBytes);
  pinion::domain domain;
  leases(domain, memory);
  pinion::domain other;
  preparations(other, memory);
  EXPECT(domain.close() == 0 && domain.get() == nullptr);
  std::puts(failures == 0 ? "interface: verified" : "interface: FAILED");
  return failures == 0 ? 0 : 1;
}
