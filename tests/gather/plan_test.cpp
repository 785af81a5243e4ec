// Gather plans carry exactly the pieces, within the device's limits, at no more than the better of all in
// place and all packed; the measuring finds the costs of a made-up device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/range.h"
#include "gather/gather_costs.h"
#include "gather/gather_plan.h"
#include "pinion/pinion.h"

using namespace pinion;

namespace {

using Pieces = std::vector<pinion_range>;
using Elements = std::vector<pinion_gather_element>;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

pinion_gather_costs linear_costs(double request, double element, double piece, double byte) {
  pinion_gather_costs costs{};
  costs.size = sizeof costs;
  costs.max_elements = 1000;
  costs.request_ns = request;
  for (std::size_t i = 0; i < std::size(costs.elements_ns); ++i)
    costs.elements_ns[i] = element * static_cast<double>((2u << i) - 1);
  costs.copied_piece_ns = piece;
  costs.copied_byte_ns = byte;
  return costs;
}

/// A packed buffer that is never written to.
struct Buffer {
  Address begin = 0x7000'0000'0000;
  std::size_t bytes = std::size_t{1} << 20;
};

Elements plan(const pinion_gather_costs& costs, const Pieces& pieces, Buffer packed = {}) {
  std::size_t count = 0;
  Elements elements;
  auto* const buffer = reinterpret_cast<void*>(packed.begin);
  const int code =
      pinion_gather_plan(&costs, pieces.data(), pieces.size(), buffer, packed.bytes, nullptr, &count);
  EXPECT_EQ(code, count ? ENOSPC : 0);
  elements.resize(count);
  EXPECT_EQ(
      pinion_gather_plan(&costs, pieces.data(), pieces.size(), buffer, packed.bytes, elements.data(), &count),
      0);
  EXPECT_LE(count, elements.size());
  elements.resize(count);
  return elements;
}

Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

/// The ranges that the bytes come from, neighbours joined.
std::vector<Range> sources(const Pieces& pieces) {
  std::vector<Range> ranges;
  for (const pinion_range& piece : pieces) {
    if (piece.bytes == 0) continue;
    const Range one = Range::of(piece.address, piece.bytes);
    if (!ranges.empty() && ranges.back().end == one.begin)
      ranges.back().end = one.end;
    else
      ranges.push_back(one);
  }
  return ranges;
}

std::vector<Range> sources(const Pieces& pieces, const Elements& elements) {
  Pieces carried;
  for (const pinion_gather_element& element : elements) {
    if (element.pieces == 0) {
      carried.push_back({element.address, element.bytes});
      continue;
    }
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < element.pieces; ++i) {
      carried.push_back(pieces[element.first_piece + i]);
      bytes += carried.back().bytes;
    }
    EXPECT_EQ(bytes, element.bytes);
  }
  return sources(carried);
}

void expect_in_limits(const pinion_gather_costs& costs, const Elements& elements, Buffer packed) {
  std::size_t request = 0, in_request = 0, request_bytes = 0;
  Address used = packed.begin;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const pinion_gather_element& element = elements[i];
    ASSERT_TRUE(element.request == request || (i > 0 && element.request == request + 1));
    if (element.request != request) in_request = request_bytes = 0;
    request = element.request;
    ++in_request;
    request_bytes += element.bytes;
    ASSERT_GT(element.bytes, 0u);
    ASSERT_LE(in_request, costs.max_elements);
    ASSERT_LE(element.bytes, costs.max_element_bytes ? costs.max_element_bytes : kUnlimited);
    ASSERT_LE(request_bytes, costs.max_request_bytes ? costs.max_request_bytes : kUnlimited);
    if (element.pieces == 0) continue;
    ASSERT_GE(address_of(element.address), used) << "packed elements overlap";
    used = address_of(element.address) + element.bytes;
    ASSERT_LE(used, packed.begin + packed.bytes);
  }
}

/// The cost of a request of one element.
double request_ns(const pinion_gather_costs& costs, std::size_t bytes) {
  return costs.request_ns + costs.large_request_ns * std::min(1.0, static_cast<double>(bytes) / (128 << 10));
}

/// Sums the costs by their definition; their elements are linear.
double ns_of(const pinion_gather_costs& costs, const Elements& elements) {
  if (elements.empty()) return 0;
  const std::size_t requests = elements.back().request + 1;
  std::vector<std::size_t> request_bytes(requests);
  double ns = static_cast<double>(elements.size() - requests) * costs.elements_ns[0];
  for (const pinion_gather_element& element : elements) {
    request_bytes[element.request] += element.bytes;
    if (element.pieces == 0) continue;
    ns += static_cast<double>(element.pieces) * costs.copied_piece_ns +
          static_cast<double>(element.bytes) * costs.copied_byte_ns;
  }
  for (const std::size_t bytes : request_bytes) ns += request_ns(costs, bytes);
  return ns;
}

/// Pieces of a seed: neighbours, gaps, overlaps, empty ones.
Pieces made_pieces(std::mt19937_64& random, std::size_t most, std::size_t most_bytes) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  Pieces pieces;
  Address at = 0x1000'0000;
  for (std::size_t n = below(most + 1); n-- > 0;) {
    const std::size_t bytes = below(8) == 0 ? 0 : 1 + below(below(2) ? 64 : most_bytes);
    if (below(3) != 0) at += below(10000);
    if (below(10) == 0) at -= std::min<Address>(at - 0x1000, below(5000));
    pieces.push_back({reinterpret_cast<void*>(at), bytes});
    at += bytes;
  }
  return pieces;
}

TEST(GatherPlan, CarriesThePiecesWithinTheLimits) {
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 20000; ++i) {
    const Pieces pieces = made_pieces(random, 40, i % 3 ? 4096 : std::size_t{6} << 30);
    const auto cost = [&] { return static_cast<double>(below(1000)); };
    pinion_gather_costs costs = linear_costs(cost(), cost(), cost() / 10, cost() / 1000);
    costs.max_elements = 1 + below(below(2) ? 4 : 100);
    if (below(3) == 0) costs.max_request_bytes = (i % 3 ? 500 : std::size_t{1} << 30) + below(5000);
    if (below(3) == 0) costs.max_element_bytes = (i % 3 ? 100 : std::size_t{1} << 31) + below(5000);
    costs.packed_offset = below(200);
    const Buffer packed{0x7000'0000'0000 + below(5000), below(3) ? std::size_t{1} << 20 : below(10000)};
    const Elements elements = plan(costs, pieces, packed);
    ASSERT_EQ(sources(pieces, elements), sources(pieces)) << i;
    expect_in_limits(costs, elements, packed);
    if (HasFatalFailure()) FAIL() << i;
  }
}

TEST(GatherPlan, IsNoDearerThanInPlaceOrPacked) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-1, 4);
  for (int i = 0; i < 20000; ++i) {
    const Pieces pieces = made_pieces(random, 130, 5000);
    const auto cost = [&] { return std::pow(10, exponent(random)); };
    pinion_gather_costs costs = linear_costs(cost(), cost(), cost(), cost() / 1000);
    costs.max_elements = 1 + random() % 40;
    if (i % 2) costs.large_request_ns = cost();
    const double planned = ns_of(costs, plan(costs, pieces));
    const double in_place = ns_of(costs, plan(costs, pieces, {0x1000, 0}));
    ASSERT_LE(planned, in_place * 1.000001) << i;
    if (sources(pieces).empty()) continue;
    std::size_t bytes = 0;
    for (const pinion_range& piece : pieces) bytes += piece.bytes;
    double packed = request_ns(costs, bytes);
    for (const pinion_range& piece : pieces)
      packed += costs.copied_piece_ns + static_cast<double>(piece.bytes) * costs.copied_byte_ns;
    ASSERT_LE(planned, packed * 1.000001) << i;
  }
}

/// All choices of pieces to copy, where no limit binds.
double cheapest(const pinion_gather_costs& costs, const Pieces& pieces) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t choice = 0; choice < std::size_t{1} << pieces.size(); ++choice) {
    double ns = costs.request_ns - costs.elements_ns[0];
    bool in_packed = false;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const bool pack = choice >> i & 1;
      if (!pack || !in_packed) ns += costs.elements_ns[0];
      if (pack) ns += costs.copied_piece_ns + static_cast<double>(pieces[i].bytes) * costs.copied_byte_ns;
      in_packed = pack;
    }
    best = std::min(best, ns);
  }
  return best;
}

TEST(GatherPlan, IsTheCheapestWhereNoLimitBinds) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    Pieces pieces;
    for (std::size_t n = 1 + random() % 10; n-- > 0;)
      pieces.push_back({reinterpret_cast<void*>(0x100000 * (pieces.size() + 1)), 1 + random() % 4000});
    const auto cost = [&](unsigned most) { return static_cast<double>(1 + random() % most); };
    const pinion_gather_costs costs = linear_costs(cost(1000), cost(200), cost(50), cost(100) / 1000);
    const Elements elements = plan(costs, pieces);
    ASSERT_NEAR(ns_of(costs, elements), cheapest(costs, pieces), 1e-6) << i;
  }
}

TEST(GatherPlan, ChoosesBySizeAndPlace) {
  const pinion_gather_costs costs = linear_costs(1000, 100, 10, 0.1);
  char memory[100000];
  // Neighbours are one element, also over an empty piece.
  Elements elements = plan(costs, {{memory, 10}, {nullptr, 0}, {memory + 10, 90}});
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_EQ(elements[0].address, memory);
  EXPECT_EQ(elements[0].bytes, 100u);
  EXPECT_EQ(elements[0].pieces, 0u);
  // Small ones beside each other are copied, a large one stays in place, as does a lonely small one.
  elements = plan(costs, {{memory, 10}, {memory + 500, 10}, {memory + 1000, 50000}, {memory + 70000, 10}});
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[0].pieces, 2u);
  EXPECT_EQ(elements[1].pieces, 0u);
  EXPECT_EQ(elements[2].pieces, 0u);
  // None at all.
  EXPECT_TRUE(plan(costs, {}).empty());
  EXPECT_TRUE(plan(costs, {{nullptr, 0}, {memory, 0}}).empty());
}

// Soft-RoCE's costs: a long list in place takes many requests, and large ones are dear.
TEST(GatherPlan, CopiesWhereFurtherLargeRequestsCostMore) {
  pinion_gather_costs costs = linear_costs(23'000, 700, 24, 0.3);
  costs.max_elements = 4;
  const Buffer room{0x7000'0000'0000, std::size_t{16} << 20};
  Pieces pieces;
  for (std::size_t i = 0; i < 64; ++i)
    pieces.push_back({reinterpret_cast<void*>(0x100000 * (i + 1)), std::size_t{32} << 10});
  EXPECT_EQ(plan(costs, pieces, room).size(), 64u) << "6 us an element, 10 us to copy it";
  costs.large_request_ns = 290'000;
  EXPECT_EQ(plan(costs, pieces, room).size(), 1u);
  // One request either way.
  pieces.resize(4);
  EXPECT_EQ(plan(costs, pieces, room).size(), 4u);
  // Smaller requests have their share of it.
  pieces.assign({{reinterpret_cast<void*>(0x100000), 1024}, {reinterpret_cast<void*>(0x200000), 1024}});
  costs = linear_costs(100, 0, 0, 0.1);
  costs.max_elements = 1;
  EXPECT_EQ(plan(costs, pieces).size(), 2u) << "100 ns for a request, 205 to copy";
  costs.large_request_ns = 64 * 5000;
  EXPECT_EQ(plan(costs, pieces).size(), 2u) << "as many bytes in all";
  pieces = {{reinterpret_cast<void*>(0x100000), 120 << 10}, {reinterpret_cast<void*>(0x200000), 120 << 10}};
  EXPECT_EQ(plan(costs, pieces).size(), 1u);
}

TEST(GatherPlan, TakesCostsOfOlderCallers) {
  pinion_gather_costs costs = linear_costs(1000, 100, 0, 1);
  costs.max_elements = 1;
  costs.large_request_ns = std::nan("");  // not theirs
  costs.size = offsetof(pinion_gather_costs, large_request_ns);
  const Pieces pieces = {{reinterpret_cast<void*>(0x100000), 1 << 16},
                         {reinterpret_cast<void*>(0x200000), 1 << 16}};
  EXPECT_EQ(plan(costs, pieces).size(), 2u);
}

TEST(GatherPlan, PacksFromTheGoodOffset) {
  pinion_gather_costs costs = linear_costs(1000, 1000, 0, 0);
  const Pieces pieces = {{reinterpret_cast<void*>(0x100000), 100}, {reinterpret_cast<void*>(0x200000), 100}};
  for (const std::size_t offset : {0, 64, 1000}) {
    costs.packed_offset = offset;
    const Buffer packed{0x7000'0000'0000 + 8, 2 * page_size()};
    const Elements elements = plan(costs, pieces, packed);
    ASSERT_EQ(elements.size(), 1u);
    EXPECT_EQ(address_of(elements[0].address) % page_size(), offset);
  }
  // A buffer that ends before serves as it is.
  const Elements elements = plan(costs, pieces, {0x7000'0000'0000 + 2000, 200});
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_EQ(address_of(elements[0].address), 0x7000'0000'0000u + 2000);
}

TEST(GatherPlan, CopiesThereAndBack) {
  std::mt19937_64 random(4);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 300; ++i) {
    std::vector<char> memory(20000), packed(30000);
    for (char& byte : memory) byte = static_cast<char>(random());
    const std::vector<char> before = memory;
    // Apart from each other, in any order.
    Pieces pieces;
    for (std::size_t at = below(300); at + 200 < memory.size(); at += 200 + below(300))
      pieces.push_back({memory.data() + at, below(200)});
    std::shuffle(pieces.begin(), pieces.end(), random);
    const auto cost = [&] { return static_cast<double>(below(100)); };
    pinion_gather_costs costs = linear_costs(cost(), cost(), cost() / 10, cost() / 100);
    costs.max_elements = 1 + below(8);
    const Elements elements =
        plan(costs, pieces, {address_of(packed.data()), below(3) ? packed.size() : below(500)});
    ASSERT_EQ(pinion_gather_pack(pieces.data(), elements.data(), elements.size()), 0);
    std::vector<char> wire, wanted;
    for (const pinion_gather_element& element : elements) {
      const auto* const from = static_cast<const char*>(element.address);
      wire.insert(wire.end(), from, from + element.bytes);
    }
    for (const pinion_range& piece : pieces) {
      const auto* const from = static_cast<const char*>(piece.address);
      wanted.insert(wanted.end(), from, from + piece.bytes);
    }
    ASSERT_EQ(wire, wanted);
    for (const pinion_gather_element& element : elements)
      if (element.pieces > 0)
        for (std::size_t piece = 0; piece < element.pieces; ++piece)
          std::memset(const_cast<void*>(pieces[element.first_piece + piece].address), 0,
                      pieces[element.first_piece + piece].bytes);
    ASSERT_EQ(pinion_gather_unpack(pieces.data(), elements.data(), elements.size()), 0);
    ASSERT_EQ(memory, before);
  }
}

TEST(GatherPlan, RefusesBadArguments) {
  pinion_gather_costs costs = linear_costs(1, 1, 1, 1);
  char memory[8];
  const pinion_range piece{memory, 8};
  pinion_gather_element element;
  std::size_t count = 1;
  const auto code_of = [&](const pinion_gather_costs* with, const pinion_range* pieces) {
    count = 1;
    return pinion_gather_plan(with, pieces, 1, nullptr, 0, &element, &count);
  };
  EXPECT_EQ(code_of(&costs, &piece), 0);
  EXPECT_EQ(code_of(nullptr, &piece), EINVAL);
  EXPECT_EQ(code_of(&costs, nullptr), EINVAL);
  EXPECT_EQ(pinion_gather_plan(&costs, &piece, 1, nullptr, 0, &element, nullptr), EINVAL);
  const pinion_range nowhere{memory, kUnlimited};
  EXPECT_EQ(code_of(&costs, &nowhere), EFAULT);
  EXPECT_NE(std::strstr(pinion_last_error(), "piece 0"), nullptr);
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    costs.elements_ns[7] = bad;
    EXPECT_EQ(code_of(&costs, &piece), EINVAL);
  }
  costs = linear_costs(1, 1, 1, 1);
  costs.max_elements = 0;
  EXPECT_EQ(code_of(&costs, &piece), EINVAL);
  costs.size = 3;
  EXPECT_EQ(code_of(&costs, &piece), EINVAL);
  EXPECT_NE(std::strstr(pinion_last_error(), "size"), nullptr);
  EXPECT_EQ(pinion_gather_pack(nullptr, nullptr, 1), EINVAL);
  EXPECT_EQ(pinion_gather_unpack(nullptr, nullptr, 0), 0);
}

// ---- measuring ----

/// A device whose further elements cost `share` of a request for the first, and less each.
struct Device {
  std::size_t max_elements = 128;
  double latency = 5000, request = 800, element = 60, exponent = 1;
  std::size_t best_offset = 64;
  double large_request = 0;  ///< of 128 KiB; of 8 KiB, a quarter
  std::size_t max_bytes = std::size_t{512} << 10;
  unsigned transfers = 0, failing = ~0u;

  double elements_ns(std::size_t elements) const {
    return element * std::pow(static_cast<double>(elements - 1), exponent);
  }
  double request_ns(std::size_t bytes) const {
    return request + large_request * std::sqrt(std::min(1.0, static_cast<double>(bytes - 8) / (128 << 10)));
  }
  double ns(std::size_t requests, std::size_t elements, std::size_t bytes, std::size_t offset) const {
    const auto each = static_cast<double>(requests);
    constexpr double kWire = 0.1;  // each byte beyond a word
    return (latency + each * request_ns(elements * bytes) - request + each * elements_ns(elements)) *
               (offset == best_offset ? 1 : 1.08) +
           kWire * each * static_cast<double>(elements * (bytes - 8));
  }
  pinion_gather_probe probe() {
    const auto transfer = [](void* context, unsigned requests, unsigned elements, std::size_t bytes,
                             std::size_t offset) {
      auto& self = *static_cast<Device*>(context);
      EXPECT_LE(bytes, std::max(self.max_bytes, std::size_t{8}));
      if (self.transfers++ == self.failing) return -1.0;
      // Now and then the kernel runs something else.
      return self.ns(requests, elements, bytes, offset) + (self.transfers % 7 == 0 ? 50000 : 0);
    };
    return {sizeof(pinion_gather_probe), max_elements, 0, 0, this, transfer, max_bytes};
  }
};

TEST(GatherCosts, AreThoseOfTheDevice) {
  Device device;
  pinion_gather_costs costs{};
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_EQ(costs.max_elements, 128u);
  EXPECT_NEAR(costs.request_ns, 800, 1);
  for (std::size_t i = 0; i < std::size(costs.elements_ns); ++i)
    EXPECT_NEAR(costs.elements_ns[i], device.elements_ns(2u << i), 1) << i;
  EXPECT_EQ(costs.packed_offset, 64u);
  device.best_offset = 128;
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_EQ(costs.packed_offset, 128u);
  EXPECT_LT(device.transfers, 1000u);
}

TEST(GatherCosts, OfADeviceOfOneElementAreItsRequests) {
  Device device{.max_elements = 1};
  pinion_gather_costs costs{};
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_NEAR(costs.request_ns, 800, 1);
  EXPECT_NEAR(costs.elements_ns[0], 800, 1);
}

TEST(GatherCosts, HaveThatOfLargeRequests) {
  Device device{.large_request = 3000};
  pinion_gather_costs costs{};
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_NEAR(costs.request_ns, 800, 1);
  EXPECT_NEAR(costs.large_request_ns, 3000, 2);
  // Requests may be cheaper than their bytes on the wire let them appear.
  device.large_request = -500;
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_EQ(costs.large_request_ns, 0);
  // Limits, and probes of 8 bytes only.
  device.large_request = 3000;
  pinion_gather_probe probe = device.probe();
  probe.max_request_bytes = 100'000;
  ASSERT_FALSE(measure_requests(probe, costs));
  EXPECT_EQ(costs.large_request_ns, 0);
  device.max_bytes = 0;
  ASSERT_FALSE(measure_requests(device.probe(), costs));
  EXPECT_EQ(costs.large_request_ns, 0);
}

TEST(GatherCosts, OfOlderCallersAreThoseThatTheyKnow) {
  Device device{.large_request = 3000};
  device.max_bytes = 0;
  pinion_gather_probe probe = device.probe();
  probe.size = offsetof(pinion_gather_probe, max_bytes);
  probe.max_bytes = ~std::size_t{0};  // not theirs
  pinion_gather_costs costs{};
  costs.size = offsetof(pinion_gather_costs, large_request_ns);
  costs.large_request_ns = -1;
  ASSERT_EQ(pinion_gather_measure(&probe, &costs), 0);
  EXPECT_NEAR(costs.request_ns, 800, 1);
  EXPECT_EQ(costs.size, offsetof(pinion_gather_costs, large_request_ns));
  EXPECT_EQ(costs.large_request_ns, -1) << "left alone";
  costs.size = sizeof costs + 64;
  ASSERT_EQ(pinion_gather_measure(&probe, &costs), 0);
  EXPECT_EQ(costs.size, sizeof costs) << "newer callers find what was filled in";
  EXPECT_EQ(costs.large_request_ns, 0);
}

TEST(GatherCosts, StopWithTheProbe) {
  for (unsigned failing = 0; failing < 40; ++failing) {
    Device device{.failing = failing};
    const pinion_gather_probe probe = device.probe();
    pinion_gather_costs costs{};
    costs.size = sizeof costs;
    EXPECT_EQ(pinion_gather_measure(&probe, &costs), EIO);
    EXPECT_EQ(device.transfers, failing + 1);
    EXPECT_EQ(costs.max_elements, 0u) << "left alone";
  }
  // Slow transfers are made twice.
  Device slow{.latency = 1e9};
  pinion_gather_costs costs{};
  ASSERT_FALSE(measure_requests(slow.probe(), costs));
  EXPECT_LE(slow.transfers, 2 * 16u);
}

TEST(GatherCosts, RefuseAProbeWithoutItsParts) {
  Device device;
  pinion_gather_probe probe = device.probe();
  pinion_gather_costs costs{};
  EXPECT_EQ(pinion_gather_measure(&probe, &costs), EINVAL) << "no size";
  costs.size = sizeof costs;
  ASSERT_EQ(pinion_gather_measure(&probe, &costs), 0);
  EXPECT_GT(costs.copied_piece_ns + costs.copied_byte_ns, 0);
  probe.max_elements = 0;
  EXPECT_EQ(pinion_gather_measure(&probe, &costs), EINVAL);
  EXPECT_EQ(pinion_gather_measure(nullptr, &costs), EINVAL);
}

/// The device's real time for a plan, copying included.
double real_ns(const Device& device, const pinion_gather_costs& costs, const Elements& elements) {
  double ns = device.latency - device.request;
  for (std::size_t i = 0; i < elements.size();) {
    std::size_t next = i, bytes = 0;
    while (next < elements.size() && elements[next].request == elements[i].request)
      bytes += elements[next++].bytes;
    ns += device.request_ns(bytes) + device.elements_ns(next - i);
    i = next;
  }
  for (const pinion_gather_element& element : elements)
    if (element.pieces > 0)
      ns += static_cast<double>(element.pieces) * costs.copied_piece_ns +
            static_cast<double>(element.bytes) * costs.copied_byte_ns;
  return ns;
}

// The paper's device: 4 elements cost 14 % more than one, 128 three times as much. Then a linear one, steep
// and flat ones, and limits as providers have them.
TEST(GatherCosts, LeadToPlansAsGoodAsTheBetterWay) {
  for (Device device : {Device{.latency = 5000, .request = 5000, .element = 321, .exponent = 0.71}, Device{},
                        Device{.max_elements = 4}, Device{.max_elements = 30, .element = 200},
                        Device{.element = 1}, Device{.element = 30, .exponent = 1.3},
                        Device{.max_elements = 4,
                        .latency = 30'000,
                        .request = 23'000,
                        .element = 300,
                        .large_request = 290'000}}) {
    pinion_gather_costs costs{};
    costs.size = sizeof costs;
    ASSERT_FALSE(measure_requests(device.probe(), costs));
    costs.copied_piece_ns = 5;
    costs.copied_byte_ns = 0.08;
    for (std::size_t count = 1; count <= 128; count = count < 8 ? count + 1 : count + 5)
      for (std::size_t bytes = 8; bytes <= 64 << 10; bytes *= 2) {
        Pieces pieces;
        for (std::size_t i = 0; i < count; ++i)
          pieces.push_back({reinterpret_cast<void*>(0x100000 * (i + 1)), bytes});
        const Buffer room{0x7000'0000'0000, std::size_t{16} << 20};
        const double planned = real_ns(device, costs, plan(costs, pieces, room));
        const double in_place = real_ns(device, costs, plan(costs, pieces, {0x1000, 0}));
        pinion_gather_costs dear = costs;
        dear.request_ns = 1e12;
        std::fill(std::begin(dear.elements_ns), std::end(dear.elements_ns), 1e12);
        const double packed = real_ns(device, costs, plan(dear, pieces, room));
        ASSERT_LE(planned, 1.05 * std::min(in_place, packed)) << count << " pieces of " << bytes;
      }
  }
}

}  // namespace
