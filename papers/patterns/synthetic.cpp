// Patterns that no benchmark has in pure form: the microbenchmarks of the helper-threads paper (its Figures 1
// and 4), and programs that change. SIZE is a message's, as in reuse:4M:2. Every rank sends (even ones) or
// receives (odd ones); a last rank without a partner sends to a rank outside of the simulation.
#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "papers/patterns/patterns.h"
#include "simulate/random.h"

namespace pinion::simulate {

namespace {

using Write = void (*)(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns);

Error make(const char* name, const std::string& scale, const std::string& ranks, std::uint64_t turns,
           Write write, Pattern& pattern) {
  const auto bytes = parse_size(scale);
  if (!bytes || *bytes == 0 || *bytes > std::uint64_t{64} << 30)
    return Error::make(EINVAL, "pattern %s: '%s' is not the size of a message, such as 4M", name,
                       scale.c_str());
  if (Error error = read_ranks(ranks, name, RanksRule::any, pattern.ranks)) return error;
  pattern.turns = turns;
  pattern.write = [write, bytes = *bytes](ProgramBuilder& builder, std::uint64_t count) {
    write(builder, bytes, count);
  };
  return {};
}

/// A message to the partner, or from it.
void message(ProgramBuilder& builder, Address buffer, std::uint64_t bytes, std::uint64_t site) {
  const bool sends = builder.rank() % 2 == 0;
  const int partner = sends ? builder.rank() + 1 : builder.rank() - 1;
  builder.blocking(sends ? CallKind::send : CallKind::receive, buffer, bytes, partner, site);
}

constexpr int kBuffers = 3;

void write_reuse(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  Address buffers[kBuffers];
  for (Address& buffer : buffers) buffer = builder.array(bytes);
  builder.begin_turn();
  for (std::uint64_t i = 0; i < kBuffers; ++i) {
    message(builder, buffers[i], bytes, 1 + i);
    builder.pause(kSecond);
  }
  builder.end_turn(turns);
}

template <std::uint64_t kTotal>
void write_loop(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  Address buffers[kTotal];
  for (Address& buffer : buffers) buffer = builder.array(bytes);
  builder.begin_turn();
  for (std::uint64_t i = 0; i < kTotal; ++i) {
    builder.pause(5 * kMillisecond);
    message(builder, buffers[i], bytes, 1 + i);
  }
  builder.end_turn(turns);
}

void write_no_reuse(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns * kBuffers; ++i) {
    message(builder, builder.array(bytes), bytes, 1 + i % kBuffers);
    builder.pause(kSecond);
  }
}

void write_nested(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  constexpr int kInnerTurns = 3;
  const Address buffers[] = {builder.array(bytes), builder.array(bytes)};
  builder.begin_turn();
  builder.pause(90 * kMillisecond);
  for (std::uint64_t loop = 0; loop < 2; ++loop) {
    for (int turn = 0; turn < kInnerTurns; ++turn) {
      builder.pause(10 * kMillisecond);
      message(builder, buffers[loop], bytes, 1 + loop);
    }
  }
  builder.end_turn(turns);
}

void write_warm_up(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  const Address steady[] = {builder.array(bytes), builder.array(bytes)};
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Address once = builder.array(bytes);
    builder.pause(static_cast<Duration>(2 + i) * 5 * kMillisecond);
    message(builder, once, bytes, 1);
    builder.pause(5 * kMillisecond);
    message(builder, steady[i % 2], bytes, 2);
  }
  builder.begin_turn();
  for (std::uint64_t i = 0; i < 2; ++i) {
    builder.pause(30 * kMillisecond);
    message(builder, steady[i], bytes, 3 + i);
  }
  builder.end_turn(turns);
}

void write_regime_change(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  Address buffers[4];
  for (Address& buffer : buffers) buffer = builder.array(bytes);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    const bool second = turn >= turns / 2;
    for (std::uint64_t i = 0; i < (second ? 4 : 3); ++i) {
      builder.pause((second ? 8 : 25) * kMillisecond);
      message(builder, buffers[second ? 3 - i : i], bytes, 1 + i);
    }
  }
}

void write_drift(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  Address buffers[kBuffers];
  for (Address& buffer : buffers) buffer = builder.array(bytes);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    const double slower =
        1 + static_cast<double>(turn) / static_cast<double>(std::max<std::uint64_t>(turns, 1));
    for (std::uint64_t i = 0; i < kBuffers; ++i) {
      builder.pause(std::llround(slower * 20 * kMillisecond));
      message(builder, buffers[i], bytes, 1 + i);
    }
  }
}

void write_irregular(ProgramBuilder& builder, std::uint64_t bytes, std::uint64_t turns) {
  constexpr std::size_t kMany = 8;
  Address buffers[kMany];
  for (Address& buffer : buffers) buffer = builder.array(bytes);
  Random random(seed_of(1, static_cast<std::uint64_t>(builder.rank() / 2)));
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    builder.pause(std::llround(std::exp2(random.between(0, 6)) * kMillisecond));
    const std::size_t which = random.below(kMany);
    message(builder, buffers[which], bytes, 1 + which % 3);
  }
}

}  // namespace

Error make_reuse(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("reuse", scale, ranks, 10, write_reuse, pattern);
}
Error make_loop3(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("loop3", scale, ranks, 100, write_loop<3>, pattern);
}
Error make_loop5(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("loop5", scale, ranks, 100, write_loop<5>, pattern);
}
Error make_no_reuse(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("no-reuse", scale, ranks, 10, write_no_reuse, pattern);
}
Error make_nested(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("nested", scale, ranks, 100, write_nested, pattern);
}
Error make_warm_up(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("warm-up", scale, ranks, 100, write_warm_up, pattern);
}
Error make_regime_change(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("regime-change", scale, ranks, 200, write_regime_change, pattern);
}
Error make_drift(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("drift", scale, ranks, 200, write_drift, pattern);
}
Error make_irregular(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make("irregular", scale, ranks, 1000, write_irregular, pattern);
}

}  // namespace pinion::simulate
