#!/usr/bin/env bash
# The bookkeeping of a put that hits, in instructions: the use and its end, at random ones of 1,024 buckets. They
# are counted by callgrind while the program's loop runs.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v valgrind >/dev/null || exit 77
bound=150

cat >"$work/hot.cpp" <<'EOF'
#include <cstdio>
#include <cstdlib>

#include "firehose/initiator.h"

using namespace pinion::firehose;

constexpr Bucket kBuckets = 1024;

__attribute__((noinline)) long hot(Initiator& initiator, BucketSize size, long rounds) {
  long hits = 0;
  std::uint64_t place = 1;
  for (long i = 0; i < rounds; ++i) {
    place = place * 6364136223846793005u + 1442695040888963407u;
    const Bucket bucket = size.of(place >> 38) % kBuckets;  // 64 MiB
    Firehose* firehose = initiator.try_use(0, bucket);
    if (!firehose) continue;
    ++hits;
    if (initiator.end_use(*firehose)) initiator.drained(*firehose);
  }
  return hits;
}

int main(int argc, char** argv) {
  const long rounds = argc == 2 ? std::atol(argv[1]) : 0;
  const BucketSize size{1 << 16};
  Initiator initiator{1, kBuckets};
  for (Bucket bucket = 0; bucket < kBuckets; ++bucket) {
    Waiter waiter;
    initiator.need(0, bucket, waiter);
    initiator.flush();
    while (initiator.next_message()) continue;
    Answer answer;
    answer.limit = kBuckets;
    answer.grants.add({{bucket, 1}, {bucket << 16, (bucket + 1) << 16, 0, 0}});
    initiator.answer(0, answer);
    while (initiator.next_answered()) continue;
    Firehose* firehose = initiator.try_use(0, bucket);
    if (!firehose || initiator.end_use(*firehose) || initiator.end_use(*firehose)) return 1;
  }
  return hot(initiator, size, rounds) == rounds ? 0 : 1;
}
EOF
g++ -std=c++20 -O2 -I"$source/src" "$work/hot.cpp" -o "$work/hot" || fail "the program does not build"

# instructions ROUNDS
instructions() {
  timeout 240 valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='hot(*' \
    "$work/hot" "$1" 2>&1 | awk '/Collected/ {print $4}'
}

few=1000 many=11000
"$work/hot" $many || fail "a put misses"
count=$((($(instructions $many) - $(instructions $few)) / (many - few)))
echo "a use and its end: $count instructions"
[ "$count" -gt 0 ] && [ "$count" -le "$bound" ] || fail "a use and its end: '$count' instructions, not $bound"

[ "$failures" -eq 0 ]
