// The registration cache in C++17: leases that end with their scope.
//
//   lease [ROUNDS]
//
// The "network" is a memcpy between two leased buffers. Prints the cache's counters, and `lease: verified`
// when every byte arrived.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pinion/pinion.hpp>
#include <vector>

namespace {

constexpr std::size_t kBytes = 1 << 20;

// True where both buffers were registered.
bool send(pinion::domain& domain, const std::vector<char>& from, std::vector<char>& to) {
  const auto source = domain.acquire(from.data(), from.size(), PINION_ACCESS_READ);
  const auto target = domain.acquire(to.data(), to.size(), PINION_ACCESS_WRITE);
  std::memcpy(to.data(), from.data(), from.size());
  return source && target;
}

}  // namespace

int main(int argc, char** argv) try {
  const long rounds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 100;
  if (argc > 2 || rounds < 1) {
    std::fprintf(stderr, "usage: lease [ROUNDS]\n");
    return 2;
  }
  pinion::session session;
  pinion::domain domain;
  std::vector<char> from(kBytes), to(kBytes);
  bool right = true;
  long registered = 0;
  for (long round = 0; round < rounds; ++round) {
    std::memset(from.data(), static_cast<int>(round % 251) + 1, from.size());
    registered += send(domain, from, to);
    right = right && from == to;
  }
  const auto counted = domain.statistics();
  std::printf("%ld of %ld messages registered: %llu hits, %llu misses\n", registered, rounds,
              static_cast<unsigned long long>(counted.hits), static_cast<unsigned long long>(counted.misses));
  std::puts(right ? "lease: verified" : "lease: FAILED");
  return right ? 0 : 1;
} catch (const pinion::error& error) {
  std::fprintf(stderr, "lease: %s\n", error.what());
  return 1;
}
