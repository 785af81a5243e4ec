// A job of processes joined in memory, with large messages between them, and the helpers of its tests.
// One thread, but for the messages themselves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "made_network.h"
#include "papers/messages/large_messages.h"
#include "pinion/pinion.h"

namespace pinion::test {

using transfer::LargeMessages;
using transfer::MessageOptions;
using transfer::Peer;
using transfer::Protocol;

constexpr std::size_t kChunk = 4096;
constexpr std::size_t kPipelineFrom = 32768;
constexpr std::size_t kPiece = 16384;
constexpr std::size_t kBounceBelow = 8192;

inline MessageOptions small_options(Protocol protocol) {
  return {.protocol = protocol,
          .bounce_below = kBounceBelow,
          .pipeline_from = kPipelineFrom,
          .piece_bytes = kPiece,
          .chunk_bytes = kChunk,
          .chunks = 8,
          .depth = 3,
          .kind = 2};
}

/// Pinion, running with this retention.
class PinionRun {
 public:
  explicit PinionRun(const std::string& retention, const std::string& more = "limit=1G") {
    if (pinion_start(("retention=" + retention + "," + more).c_str()) != 0)
      ADD_FAILURE() << pinion_last_error();
  }
  ~PinionRun() { EXPECT_EQ(pinion_stop(), 0) << pinion_last_error(); }
};

/// Endpoints, and the messages over each; all moved on by one thread.
class MessageJob {
 public:
  MessageJob(Peer peers, const MessageOptions& options, unsigned seed = 1) : network(peers, seed) {
    for (Peer peer = 0; peer < peers; ++peer) {
      LargeMessages::Result opened = LargeMessages::open(network[peer], options);
      if (opened.error) ADD_FAILURE() << opened.error.message;
      messages.push_back(std::move(opened.messages));
    }
  }
  ~MessageJob() { close(); }

  /// All is given back when the messages are closed; `quiet`: no peer reads any more.
  void close(bool quiet = true) {
    if (messages.empty()) return;
    for (const auto& each : messages) each->close();
    for (Peer peer = 0; peer < network.peers(); ++peer)
      EXPECT_TRUE(network[peer].close_domain()) << pinion_last_error();
    EXPECT_EQ(network.bad_writes(), 0u);
    EXPECT_TRUE(!quiet || network.bad_reads() == 0);
    messages.clear();
  }
  LargeMessages& operator[](Peer peer) { return *messages[peer]; }
  void move() {
    for (const auto& each : messages) each->progress();
  }
  template <class Requests>
  void finish(const Requests& requests) {
    for (unsigned turns = 0; turns < 1'000'000; ++turns) {
      if (std::all_of(requests.begin(), requests.end(), [](const auto& r) { return r.done(); })) return;
      move();
    }
    ADD_FAILURE() << "requests never end";
  }
  bool all_chunks_are_back() const {
    return std::all_of(messages.begin(), messages.end(),
                       [](const auto& each) { return each->pool().free_chunks() == each->pool().chunks(); });
  }

  MadeNetwork network;
  std::vector<std::unique_ptr<LargeMessages>> messages;
};

/// Memory that begins off every boundary, with bytes before and after that must stay as they are.
class Bytes {
 public:
  explicit Bytes(std::size_t size, unsigned pattern = 0) : all_(size + 2 * kMargin, kGuard), size_(size) {
    if (pattern == 0) return;
    std::mt19937 random(pattern);
    for (std::size_t i = 0; i < size; ++i) data()[i] = static_cast<char>(random());
  }
  char* data() { return all_.data() + kMargin; }
  std::size_t size() const { return size_; }
  bool holds(const Bytes& other) const {
    return size_ >= other.size_ &&
           std::equal(other.all_.begin() + kMargin, other.all_.end() - kMargin, all_.begin() + kMargin);
  }
  bool is_guarded() const {
    const auto intact = [](char c) { return c == kGuard; };
    return std::all_of(all_.begin(), all_.begin() + kMargin, intact) &&
           std::all_of(all_.end() - kMargin, all_.end(), intact);
  }

 private:
  static constexpr std::size_t kMargin = 4096 + 13;
  static constexpr char kGuard = 0x5a;
  std::vector<char> all_;
  std::size_t size_;
};

}  // namespace pinion::test
