// What the front is told of each call of the driver: the memory, the direction, the stream; and that the
// driver gets the program's arguments. The front and the driver are the test's.
#include "intercept/cuda/calls.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "intercept/cuda/driver.h"
#include "intercept/cuda/front.h"
#include "intercept/cuda/program_memory.h"
#include "intercept/cuda/reach.h"
#include "intercept/cuda/registrations.h"
#include "intercept/cuda/shapes.h"
#include "intercept/cuda/submission_gate.h"
#include "intercept/cuda/submissions.h"

namespace pinion::cuda {

namespace {

enum class Way { none, copy, pass, pass_for_good };

/// What the front and the driver saw last.
struct Seen {
  Way way = Way::none;
  LinearCopy copy;
  std::vector<Range> ranges;  ///< from the first byte of a block to the last
  std::vector<Block> blocks;  ///< the same with their rows
  Stream stream = nullptr;
  std::vector<Word> arguments;  ///< of the driver
  int calls = 0;
};
Seen g_seen;
void* g_other_memory = nullptr;  ///< what the front puts in place of the program's
std::function<void()> g_in_driver = [] {};
std::map<DevicePointer, unsigned> g_kinds;
bool g_capturing = false;
ArrayShape g_array{};

constexpr Result kAnswer = 77;

void note(Way way, std::span<const Block> blocks) {
  g_seen.way = way;
  for (const Block& block : blocks) {
    if (block.empty()) continue;
    g_seen.ranges.push_back(block.hull());
    g_seen.blocks.push_back(block);
  }
}

Result plain_call(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k) {
  ++g_seen.calls;
  g_seen.arguments = {a, b, c, d, e, f, g, h, i, j, k};
  g_in_driver();
  return kAnswer;
}

/// Calls the wrapper of the symbol. What a call leaves out reaches nobody.
template <class... A>
Seen call(const char* symbol, A... arguments) {
  const std::size_t at = call_of(symbol);
  EXPECT_LT(at, kCallCount) << symbol;
  g_seen = {};
  g_behind[at][0].store(reinterpret_cast<void*>(&plain_call));
  const auto word = [](auto value) {
    if constexpr (std::is_pointer_v<decltype(value)>)
      return reinterpret_cast<Word>(value);
    else
      return static_cast<Word>(value);
  };
  const auto wrapper = reinterpret_cast<Result (*)(decltype(word(arguments))...)>(kCalls[at].wrappers[0]);
  EXPECT_EQ(wrapper(word(arguments)...), kAnswer) << symbol;
  EXPECT_EQ(g_seen.calls, 1) << symbol;
  const std::vector<Word> given{word(arguments)...};
  g_seen.arguments.resize(given.size());
  if (g_other_memory == nullptr) {
    EXPECT_EQ(g_seen.arguments, given) << symbol;
  }
  return g_seen;
}

std::vector<Range> ranges(std::initializer_list<Range> list) { return list; }
Range at(Address begin, std::size_t bytes) { return {begin, begin + bytes}; }

const Stream kStream = reinterpret_cast<Stream>(0x5000);
constexpr Word kNull = 0;
void* const kHost = reinterpret_cast<void*>(0x7000'0000'1000);
constexpr Word kHostAt = 0x7000'0000'1000, kDevice = 0x7f00'0000'0000;
constexpr std::size_t kMiB = 1 << 20;

Result answer_attribute(void* value, int attribute, DevicePointer pointer) {
  const auto kind = g_kinds.find(pointer);
  if (kind == g_kinds.end()) return kInvalidValue;
  *static_cast<unsigned*>(value) = attribute == kAttributeIsManaged ? kind->second == 9 : kind->second;
  return kSuccess;
}
Result answer_capturing(Stream, int* state) { return *state = g_capturing ? 1 : 0, kSuccess; }
Result answer_flags(Stream, unsigned* flags) { return *flags = kStreamNonBlocking, kSuccess; }

}  // namespace

// ---- the front and the driver ----

Result copy(const LinearCopy& copy, const EntryFrame&, FunctionRef<Result(void* host)> plain) {
  g_seen.way = Way::copy, g_seen.copy = copy;
  return plain(g_other_memory != nullptr ? g_other_memory : copy.host);
}
Result pass(std::span<Block> blocks, FunctionRef<Result()> plain) { return note(Way::pass, blocks), plain(); }
Result pass_for_good(std::span<Block> blocks, FunctionRef<Result()> plain) {
  return note(Way::pass_for_good, blocks), plain();
}
void bar_captured(std::span<const Block> blocks) {
  g_seen.ranges.clear();
  note(Way::pass_for_good, blocks);
}
void unknown_copy(const char*) {}

bool has_driver() { return true; }
const Driver& driver() {
  static const Driver functions = [] {
    Driver made;
    made.pointer_attribute = answer_attribute;
    made.stream_is_capturing = answer_capturing;
    made.stream_flags = answer_flags;
    made.context_current = [](Context* context) { return *context = nullptr, kSuccess; };
    made.array_shape = [](ArrayShape* shape, void* array) {
      EXPECT_EQ(array, &g_array);
      return *shape = g_array, kSuccess;
    };
    return made;
  }();
  return functions;
}
void* wrapped_address(const char*, int, bool, void* found) { return found; }

void Registrations::prepare() {}

Result register_host(Range, PlainCall plain) { return plain(); }
Result unregister_host(void*, PlainCall plain) { return plain(); }
Result allocate_host(void**, std::size_t, PlainCall plain) { return plain(); }
Result free_host(void*, PlainCall plain) { return plain(); }
Result host_flags(unsigned*, void*, PlainCall plain) { return plain(); }
Result host_device_pointer(DevicePointer*, void*, unsigned, PlainCall plain) { return plain(); }
Result address_range(DevicePointer*, std::size_t*, DevicePointer, PlainCall plain) { return plain(); }
Result pointer_attribute(void*, int, DevicePointer, PlainCall plain) { return plain(); }
Result pointer_attributes(unsigned, const int*, void**, DevicePointer, PlainCall plain) { return plain(); }
Result begin_capture(Stream stream, PlainCall plain) { return g_seen.stream = stream, plain(); }
Result destroy_context(Context, PlainCall plain) { return plain(); }
Result release_primary_context(Ordinal, PlainCall plain) { return plain(); }
Result reset_primary_context(Ordinal, PlainCall plain) { return plain(); }

namespace {

struct CudaCalls : testing::Test {
  ~CudaCalls() override {
    g_other_memory = nullptr;
    g_in_driver = [] {};
    g_kinds.clear();
    g_capturing = false;
  }
};

void expect_copy(const Seen& seen, Direction direction, bool async, Stream stream, std::size_t bytes) {
  EXPECT_EQ(seen.way, Way::copy);
  EXPECT_EQ(seen.copy.direction, direction);
  EXPECT_EQ(seen.copy.async, async);
  EXPECT_EQ(seen.copy.stream, stream);
  EXPECT_EQ(seen.copy.device, kDevice);
  EXPECT_EQ(seen.copy.host, kHost);
  EXPECT_EQ(seen.copy.bytes, bytes);
}

TEST_F(CudaCalls, LinearCopiesAreToldWithTheStreamThatTheirVersionMeans) {
  const auto in = Direction::to_device, out = Direction::from_device;
  expect_copy(call("cuMemcpyHtoD_v2", kDevice, kHost, 100), in, false, kLegacyStream, 100);
  expect_copy(call("cuMemcpyHtoD_v2_ptds", kDevice, kHost, 100), in, false, kThreadStream, 100);
  expect_copy(call("cuMemcpyDtoH_v2", kHost, kDevice, 100), out, false, kLegacyStream, 100);
  expect_copy(call("cuMemcpyDtoH_v2_ptds", kHost, kDevice, 100), out, false, kThreadStream, 100);
  for (const bool is_in : {true, false}) {
    const std::string symbol = is_in ? "cuMemcpyHtoDAsync_v2" : "cuMemcpyDtoHAsync_v2";
    const Word to = is_in ? kDevice : kHostAt, from = is_in ? kHostAt : kDevice;
    const Direction direction = is_in ? in : out;
    expect_copy(call(symbol.c_str(), to, from, 7, kNull), direction, true, kLegacyStream, 7);
    expect_copy(call(symbol.c_str(), to, from, 7, kStream), direction, true, kStream, 7);
    expect_copy(call((symbol + "_ptsz").c_str(), to, from, 7, kNull), direction, true, kThreadStream, 7);
    expect_copy(call((symbol + "_ptsz").c_str(), to, from, 7, kStream), direction, true, kStream, 7);
  }
}

TEST_F(CudaCalls, TheDriverGetsTheMemoryThatTheFrontChooses) {
  g_other_memory = &g_seen;
  const auto other = reinterpret_cast<Word>(g_other_memory);
  EXPECT_EQ(call("cuMemcpyHtoD_v2", kDevice, kHost, 100).arguments[1], other);
  EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", kHost, kDevice, 100, kStream).arguments[0], other);
  g_kinds[kDevice] = kMemoryTypeDevice;
  EXPECT_EQ(call("cuMemcpy", kDevice, kHost, kMiB).arguments, (std::vector<Word>{kDevice, other, kMiB}));
  EXPECT_EQ(call("cuMemcpyAsync", kHost, kDevice, kMiB, kStream).arguments[0], other);
}

TEST_F(CudaCalls, AUnifiedCopyIsLinearWhereOneSideIsTheHosts) {
  g_kinds[kDevice] = kMemoryTypeDevice;
  expect_copy(call("cuMemcpy", kDevice, kHost, 65536), Direction::to_device, false, kLegacyStream, 65536);
  expect_copy(call("cuMemcpy_ptds", kHost, kDevice, kMiB), Direction::from_device, false, kThreadStream,
              kMiB);
  expect_copy(call("cuMemcpyAsync", kDevice, kHost, kMiB, kStream), Direction::to_device, true, kStream,
              kMiB);
  g_kinds[kHostAt] = kMemoryTypeHost;  // pinned
  expect_copy(call("cuMemcpyAsync_ptsz", kHost, kDevice, kMiB, kNull), Direction::from_device, true,
              kThreadStream, kMiB);
}

TEST_F(CudaCalls, AUnifiedCopyThatMayBeAnythingClosesBothSides) {
  const auto both = ranges({at(kHostAt, 65535), at(kDevice, 65535)});
  const Seen small = call("cuMemcpy", kDevice, kHost, 65535);
  EXPECT_EQ(small.way, Way::pass);
  EXPECT_EQ(small.ranges, both);
  EXPECT_EQ(call("cuMemcpyAsync", kDevice, kHost, kMiB, kStream).way, Way::pass);  // two hosts'
  g_kinds[kDevice] = 9;                                                            // managed
  EXPECT_EQ(call("cuMemcpyAsync", kDevice, kHost, kMiB, kStream).way, Way::pass);
  EXPECT_EQ(call("cuMemcpyDtoD_v2", kDevice, kHost, 65535).ranges, both);
  EXPECT_EQ(call("cuMemcpyDtoDAsync_v2", kDevice, kHost, 65535, kStream).ranges, both);
  EXPECT_EQ(call("cuMemcpyPeer", kDevice, 1, kHost, 2, 65535).ranges, both);
  EXPECT_EQ(call("cuMemcpyPeerAsync", kDevice, 1, kHost, 2, 65535, kStream).ranges, both);
  g_kinds[kDevice] = g_kinds[kDevice + kMiB] = kMemoryTypeDevice;
  EXPECT_EQ(call("cuMemcpy", kDevice, kDevice + kMiB, kMiB).way, Way::none);
}

TEST_F(CudaCalls, CopiesOfArraysCloseTheirHostMemory) {
  const auto host = ranges({at(kHostAt, 300)});
  for (const Seen& seen :
       {call("cuMemcpyHtoA_v2", 1, 64, kHost, 300), call("cuMemcpyAtoH_v2", kHost, 1, 64, 300),
        call("cuMemcpyHtoAAsync_v2", 1, 64, kHost, 300, kStream),
        call("cuMemcpyAtoHAsync_v2_ptsz", kHost, 1, 64, 300, kNull)}) {
    EXPECT_EQ(seen.way, Way::pass);
    EXPECT_EQ(seen.ranges, host);
  }
}

TEST_F(CudaCalls, RowsAreClosedAndNothingBetweenThem) {
  Copy2D rows{};
  rows.source = {.x = 16, .y = 2, .type = 1, .host = kHost, .device = 0, .array = nullptr, .pitch = 1000};
  rows.destination = {.x = 0, .y = 0, .type = 3, .host = nullptr, .device = 0, .array = &rows, .pitch = 0};
  rows.width = 100, rows.height = 5;
  const auto expected = ranges({{kHostAt + 2 * 1000 + 16, kHostAt + 6 * 1000 + 116}});
  for (const char* const symbol : {"cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds", "cuMemcpy2DUnaligned_v2"})
    EXPECT_EQ(call(symbol, &rows).ranges, expected) << symbol;
  const Seen seen = call("cuMemcpy2DAsync_v2", &rows, kStream);
  EXPECT_EQ(seen.ranges, expected);
  ASSERT_EQ(seen.blocks.size(), 1u);
  for (std::size_t row = 2; row < 6; ++row) {
    const Address begin = kHostAt + row * 1000 + 16;
    EXPECT_TRUE(seen.blocks[0].touches(at(begin + 99, 1)));
    EXPECT_FALSE(seen.blocks[0].touches(at(begin + 100, 900)));
  }
  // Unified: the pointer is the device's.
  rows.destination = {
      .x = 4, .y = 0, .type = 4, .host = nullptr, .device = kDevice, .array = nullptr, .pitch = 0};
  rows.height = 1;
  EXPECT_EQ(call("cuMemcpy2D_v2", &rows).ranges,
            ranges({at(kHostAt + 2 * 1000 + 16, 100), at(kDevice + 4, 100)}));
  rows.height = 0;
  EXPECT_EQ(call("cuMemcpy2D_v2", &rows).ranges, ranges({}));
  rows.height = ~std::size_t{0}, rows.source.pitch = ~std::size_t{0};  // the driver refuses it
  EXPECT_EQ(call("cuMemcpy2D_v2", &rows).ranges, ranges({}));
}

TEST_F(CudaCalls, LayersAreClosedAndNothingBetweenTheirRows) {
  Copy3D layers{};
  layers.source.type = 2, layers.source.device = kDevice, layers.source.pitch = 256, layers.source.height = 8;
  layers.destination.type = 1, layers.destination.host = kHost;
  layers.destination.x = 1, layers.destination.y = 2, layers.destination.z = 3;
  layers.destination.pitch = 512, layers.destination.height = 10;
  layers.width = 200, layers.height = 4, layers.depth = 2;
  const auto expected = ranges({{kDevice, kDevice + (8 + 3) * 256 + 200},
                                {kHostAt + (3 * 10 + 2) * 512 + 1, kHostAt + (4 * 10 + 5) * 512 + 201}});
  const Seen seen = call("cuMemcpy3D_v2", &layers);
  EXPECT_EQ(seen.ranges, expected);
  ASSERT_EQ(seen.blocks.size(), 2u);
  const Address last_of_first = kHostAt + (3 * 10 + 5) * 512 + 201, second = kHostAt + (4 * 10 + 2) * 512 + 1;
  EXPECT_TRUE(seen.blocks[1].touches({last_of_first - 1, second}));
  EXPECT_FALSE(seen.blocks[1].touches({last_of_first, second}));
  EXPECT_TRUE(seen.blocks[1].touches({last_of_first, second + 1}));
  EXPECT_EQ(call("cuMemcpy3DAsync_v2", &layers, kStream).ranges, expected);
  EXPECT_EQ(call("cuMemcpy3DPeer", &layers).ranges, expected);
  EXPECT_EQ(call("cuMemcpy3DPeerAsync_ptsz", &layers, kNull).ranges, expected);
}

TEST_F(CudaCalls, BatchesCloseTheirMemoryForGood) {
  const DevicePointer to[] = {kDevice, kDevice + kMiB, kDevice}, from[] = {kHostAt, kHostAt + 400, 0};
  const std::size_t sizes[] = {100, 50, 0};
  // Too little lies between the first two for a registration.
  const auto expected = ranges({at(kHostAt, 450), at(kDevice, 100), at(kDevice + kMiB, 50)});
  for (const Seen& seen : {call("cuMemcpyBatchAsync", to, from, sizes, 3, 11, 12, 13, 14, kStream),
                           call("cuMemcpyBatchAsync_v2", to, from, sizes, 3, 11, 12, 13, kStream),
                           call("cuMemcpyBatchAsync_v2_ptsz", to, from, sizes, 3, 11, 12, 13, kNull)}) {
    EXPECT_EQ(seen.way, Way::pass_for_good);
    EXPECT_EQ(seen.ranges, expected);
  }
  const Seen one = call("cuMemcpyWithAttributesAsync", kDevice, kHost, 100, 11, kStream);
  EXPECT_EQ(one.way, Way::pass_for_good);
  EXPECT_EQ(one.ranges, ranges({at(kHostAt, 100), at(kDevice, 100)}));
}

TEST_F(CudaCalls, BatchesOfLayersCountElements) {
  BatchCopy copies[2] = {};
  copies[0].source.type = 1, copies[0].source.memory.pointer = kHostAt;
  copies[0].source.memory.row = 1000, copies[0].source.memory.layer = 10;
  copies[0].destination.type = 1, copies[0].destination.memory.pointer = kDevice;  // packed
  copies[0].width = 100, copies[0].height = 3, copies[0].depth = 2;
  copies[1].source.type = 1, copies[1].source.memory.pointer = kHostAt + kMiB;
  copies[1].destination.type = 2;  // an array
  copies[1].destination.array.array = &g_array;
  g_array = {.width = 8, .height = 1, .depth = 1, .format = 0x10, .channels = 2, .flags = 0};
  copies[1].width = 8, copies[1].height = 1, copies[1].depth = 1;
  const auto expected =
      ranges({{kHostAt, kHostAt + 12 * 1000 + 100}, at(kHostAt + kMiB, 8 * 4), at(kDevice, 600)});
  EXPECT_EQ(call("cuMemcpy3DBatchAsync", 2, copies, 11, 12, kStream).ranges, expected);
  EXPECT_EQ(call("cuMemcpy3DBatchAsync_v2", 2, copies, 11, kStream).ranges, expected);
  EXPECT_EQ(call("cuMemcpy3DWithAttributesAsync", copies, 0, kStream).ranges,
            ranges({expected[0], expected[2]}));
  g_array.format = 0x91;  // compressed: the elements may be the largest
  EXPECT_EQ(call("cuMemcpy3DBatchAsync", 2, copies, 11, 12, kStream).ranges[1], at(kHostAt + kMiB, 8 * 16));
}

TEST_F(CudaCalls, MemoryThatIsSetIsClosed) {
  EXPECT_EQ(call("cuMemsetD8_v2", kHost, 1, 100).ranges, ranges({at(kHostAt, 100)}));
  EXPECT_EQ(call("cuMemsetD16Async", kHost, 1, 100, kStream).ranges, ranges({at(kHostAt, 200)}));
  EXPECT_EQ(call("cuMemsetD32_v2_ptds", kHost, 1, 100).ranges, ranges({at(kHostAt, 400)}));
  EXPECT_EQ(call("cuMemsetD2D32_v2", kHost, 1000, 1, 100, 3).ranges, ranges({at(kHostAt, 2400)}));
  EXPECT_EQ(call("cuMemsetD2D8Async", kHost, 1000, 1, 100, 3, kStream).ranges, ranges({at(kHostAt, 2100)}));
}

TEST_F(CudaCalls, NodesOfGraphsCloseTheirHostMemoryForGood) {
  g_kinds[kDevice] = kMemoryTypeDevice;
  NodeParameters node{};
  node.type = kCopyNode;
  Copy3D& layers = node.copy.copy;
  layers.source.type = 1, layers.source.host = kHost;
  layers.destination.type = 2, layers.destination.device = kDevice;
  layers.width = 100, layers.height = 1, layers.depth = 1;
  const auto host = ranges({at(kHostAt, 100)});
  for (const Seen& seen :
       {call("cuGraphAddMemcpyNode", 1, 2, 3, 4, &layers, 6), call("cuGraphMemcpyNodeSetParams", 1, &layers),
        call("cuGraphExecMemcpyNodeSetParams", 1, 2, &layers, 4), call("cuGraphAddNode", 1, 2, 3, 4, &node),
        call("cuGraphAddNode_v2", 1, 2, 3, 4, 5, &node), call("cuGraphNodeSetParams", 1, &node),
        call("cuGraphExecNodeSetParams", 1, 2, &node)}) {
    EXPECT_EQ(seen.way, Way::pass_for_good);
    EXPECT_EQ(seen.ranges, host);
  }
  node.type = kSettingNode;
  node.setting = {kHostAt, 0, 1, 4, 10, 1};
  EXPECT_EQ(call("cuGraphAddNode_v2", 1, 2, 3, 4, 5, &node).ranges, ranges({at(kHostAt, 40)}));
  EXPECT_EQ(call("cuGraphAddMemsetNode", 1, 2, 3, 4, &node.setting, 6).ranges, ranges({at(kHostAt, 40)}));
  node.type = 0;  // a kernel
  EXPECT_EQ(call("cuGraphAddNode_v2", 1, 2, 3, 4, 5, &node).ranges, ranges({}));
}

TEST_F(CudaCalls, WhatAGraphCapturesIsClosedForGood) {
  g_capturing = true;
  g_kinds[kDevice] = kMemoryTypeDevice;
  const Seen seen = call("cuMemcpyDtoDAsync_v2", kDevice, kHost, 100, kStream);
  EXPECT_EQ(seen.way, Way::pass_for_good);
  EXPECT_EQ(seen.ranges, ranges({at(kHostAt, 100)}));
}

/// Whether another thread may have the stream for itself now.
bool is_free(Stream stream) {
  bool held = false;
  std::thread([&] {
    held = SubmissionGate::Exclusive(submission_gate(), driver(), stream, nullptr).held();
  }).join();
  return held;
}

TEST_F(CudaCalls, WorkForAStreamEntersTheGate) {
  const Stream other = reinterpret_cast<Stream>(0x6000);
  const auto enters = [&](Stream expected) {
    g_in_driver = [=] {
      EXPECT_FALSE(is_free(expected));
      EXPECT_TRUE(is_free(expected == other ? kStream : other));
    };
  };
  enters(kStream);
  call("cuLaunchKernel", 1, 2, 3, 4, 5, 6, 7, 8, kStream, 10, 11);
  call("cuLaunchCooperativeKernel_ptsz", 1, 2, 3, 4, 5, 6, 7, 8, kStream, 10);
  call("cuEventRecord", 1, kStream);
  call("cuGraphLaunch", 1, kStream);
  call("cuMemAllocAsync", 1, 2, kStream);
  call("cuStreamWaitValue32_v2", kStream, 2, 3, 4);
  call("cuMemPrefetchAsync_v2", kHost, 2, 3, 4, kStream);
  call("cuMemcpyBatchAsync_v2", kNull, kNull, kNull, 3, 11, 12, 13, kStream);
  call("cuMemsetD8Async", kHost, 1, 100, kStream);
  const LaunchWithConfig::Config config{{1, 2, 3, 4, 5, 6, 7}, kStream};
  call("cuLaunchKernelEx", &config, 2, 3, 4);
  g_in_driver = [] { EXPECT_FALSE(is_free(kLegacyStream)); };
  call("cuLaunchKernel", 1, 2, 3, 4, 5, 6, 7, 8, kNull, 10, 11);
  call("cuMemcpyAtoA_v2", 1, 2, 3, 4, 5);
}

TEST_F(CudaCalls, WorkForAllStreamsOfAContextEntersTheGate) {
  g_in_driver = [] {
    EXPECT_FALSE(is_free(kStream));
    EXPECT_FALSE(is_free(kLegacyStream));
  };
  for (const char* const symbol :
       {"cuCtxRecordEvent", "cuCtxWaitEvent", "cuGreenCtxRecordEvent", "cuGreenCtxWaitEvent"})
    call(symbol, 0x10, 0x20);
}

TEST_F(CudaCalls, CallsWithinACallBelongToIt) {
  bool first = true;
  g_in_driver = [&] {
    if (!first) return;
    first = false;
    const std::size_t at = call_of("cuMemcpyDtoH_v2");
    g_behind[at][0].store(reinterpret_cast<void*>(&plain_call));
    reinterpret_cast<Result (*)(Word, Word, Word)>(kCalls[at].wrappers[0])(kHostAt, kDevice, 5);
    EXPECT_EQ(g_seen.copy.direction, Direction::to_device);  // the outer one's
    EXPECT_EQ(g_seen.calls, 2);
    g_seen.calls = 1, g_seen.arguments = {kDevice, kHostAt, 100};
  };
  call("cuMemcpyHtoD_v2", kDevice, kHost, 100);
  EXPECT_FALSE(first);
  expect_copy(call("cuMemcpyDtoH_v2", kHost, kDevice, 9), Direction::from_device, false, kLegacyStream, 9);
}

TEST_F(CudaCalls, ACaptureIsToldWithItsStream) {
  EXPECT_EQ(call("cuStreamBeginCapture_v2", kStream, 1).stream, kStream);
  EXPECT_EQ(call("cuStreamBeginCapture_v2_ptsz", kNull, 1).stream, kThreadStream);
  EXPECT_EQ(call("cuStreamBeginCaptureToGraph", kStream, 2, 3, 4, 5, 6).stream, kStream);
}

TEST(CudaCallTable, HasEachFormOnce) {
  for (std::size_t i = 0; i < kCallCount; ++i) {
    EXPECT_EQ(call_of(kCalls[i].symbol), i) << kCalls[i].symbol;
    const std::string symbol = kCalls[i].symbol;
    EXPECT_EQ(symbol.substr(0, std::string(kCalls[i].base).size()), kCalls[i].base);
    EXPECT_EQ(kCalls[i].per_thread, symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) << symbol;
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(kCalls[i].base == std::string(kCalls[j].base) && kCalls[i].since == kCalls[j].since &&
                   kCalls[i].per_thread == kCalls[j].per_thread)
          << symbol;
  }
  EXPECT_EQ(call_of("cuDriverGetVersion"), kCallCount);
}

}  // namespace

}  // namespace pinion::cuda
