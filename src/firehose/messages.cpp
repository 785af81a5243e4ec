#include "firehose/messages.h"

#include <cstring>

namespace pinion::firehose {

namespace {

enum class Kind : std::uint8_t { move = 1, release, answer, recall, limit };

class Writer {
 public:
  explicit Writer(void* wire) : begin_(static_cast<std::byte*>(wire)), at_(begin_) {}

  template <class T>
  void put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  template <class T, unsigned Most>
  void put(const List<T, Most>& list) {
    put(static_cast<std::uint8_t>(list.count));
    for (const T& item : list) put(item);
  }
  std::size_t bytes() const { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* at_;
};

/// Each read returns false past the end.
class Reader {
 public:
  Reader(const void* wire, std::size_t bytes) : at_(static_cast<const std::byte*>(wire)), left_(bytes) {}

  template <class T>
  bool get(T& value) {
    if (left_ < sizeof value) return false;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    left_ -= sizeof value;
    return true;
  }
  template <class T, unsigned Most>
  bool get(List<T, Most>& list) {
    std::uint8_t count = 0;
    if (!get(count) || count > Most) return false;
    for (list.count = 0; list.count < count; ++list.count)
      if (!get(list.items[list.count])) return false;
    return true;
  }
  std::size_t left() const { return left_; }

 private:
  const std::byte* at_;
  std::size_t left_;
};

/// These go onto the wire as they are: they have no padding.
static_assert(sizeof(BucketRef) == 16 && sizeof(BucketRange) == 16 && sizeof(RemotePart) == 32);

void put(Writer& to, const Move& move) {
  to.put(Kind::move);
  to.put(move.wanted);
  to.put(move.victims);
  to.put(move.expected);
}
void put(Writer& to, const Release& release) {
  to.put(Kind::release);
  to.put(release.firehoses);
}
void put(Writer& to, const Answer& answer) {
  to.put(Kind::answer);
  to.put(answer.limit);
  to.put(answer.delay);
  to.put(static_cast<std::uint8_t>(answer.grants.count));
  for (const Grant& grant : answer.grants) {
    to.put(grant.ref);
    to.put(grant.parts);
  }
  to.put(static_cast<std::uint8_t>(answer.refusals.count));
  for (const Refusal& refusal : answer.refusals) {
    to.put(refusal.bucket);
    to.put(refusal.error);
  }
}
void put(Writer& to, const Recall& recall) {
  to.put(Kind::recall);
  to.put(recall.buckets);
  to.put(recall.last);
}
void put(Writer& to, const Limit& limit) {
  to.put(Kind::limit);
  to.put(limit.limit);
  to.put(limit.spare);
  to.put(limit.later);
}

bool get(Reader& from, Move& move) {
  return from.get(move.wanted) && from.get(move.victims) && from.get(move.expected);
}
bool get(Reader& from, Release& release) { return from.get(release.firehoses); }
bool get(Reader& from, Answer& answer) {
  std::uint8_t count = 0;
  if (!from.get(answer.limit) || !from.get(answer.delay) || !from.get(count) || count > kMostMoved)
    return false;
  for (; answer.grants.count < count; ++answer.grants.count) {
    Grant& grant = answer.grants.items[answer.grants.count];
    if (!from.get(grant.ref) || !from.get(grant.parts)) return false;
  }
  if (!from.get(count) || count > kMostMoved) return false;
  for (; answer.refusals.count < count; ++answer.refusals.count) {
    Refusal& refusal = answer.refusals.items[answer.refusals.count];
    if (!from.get(refusal.bucket) || !from.get(refusal.error)) return false;
  }
  return true;
}
bool get(Reader& from, Recall& recall) { return from.get(recall.buckets) && from.get(recall.last); }
bool get(Reader& from, Limit& limit) {
  return from.get(limit.limit) && from.get(limit.spare) && from.get(limit.later);
}

bool valid(const BucketRef& ref, BucketSize size) { return ref.bucket < size.end() && ref.epoch != 0; }

bool valid(const Grant& grant, BucketSize size) {
  if (!valid(grant.ref, size) || grant.parts.count == 0) return false;
  const Range bucket = size.range(grant.ref.bucket);
  for (const RemotePart& part : grant.parts)
    if (part.begin >= part.end || !bucket.contains({part.begin, part.end})) return false;
  return true;
}
bool valid(const Refusal& refusal, BucketSize size) {
  return refusal.bucket < size.end() && refusal.error > 0;
}
bool valid(Bucket bucket, BucketSize size) { return bucket < size.end(); }

template <class T, unsigned Most>
bool valid(const List<T, Most>& list, BucketSize size) {
  for (const T& item : list)
    if (!valid(item, size)) return false;
  return true;
}

bool valid(const Move& move, BucketSize size) {
  return move.wanted.count > 0 && valid(move.wanted, size) && valid(move.victims, size) && move.expected >= 0;
}
bool valid(const Release& release, BucketSize size) { return valid(release.firehoses, size); }
bool valid(const Answer& answer, BucketSize size) {
  return valid(answer.grants, size) && valid(answer.refusals, size);
}
bool valid(const Recall& recall, BucketSize size) {
  return recall.buckets.first < size.end() && recall.buckets.count <= size.end() - recall.buckets.first;
}
bool valid(const Limit& limit, BucketSize) { return limit.later >= 0; }

template <class T>
std::optional<Decoded> decode_as(Reader from, std::size_t bytes, BucketSize size) {
  T message;
  if (!get(from, message) || !valid(message, size)) return std::nullopt;
  if (from.left() && !std::is_same_v<T, Move>) return std::nullopt;
  return Decoded{message, bytes - from.left()};
}

}  // namespace

std::size_t encode(const Message& message, void* wire) {
  Writer to(wire);
  std::visit([&](const auto& of) { put(to, of); }, message);
  return to.bytes();
}

std::optional<Decoded> decode(const void* wire, std::size_t bytes, BucketSize size) {
  Reader from(wire, bytes);
  Kind kind;
  if (!from.get(kind)) return std::nullopt;
  switch (kind) {
    case Kind::move:
      return decode_as<Move>(from, bytes, size);
    case Kind::release:
      return decode_as<Release>(from, bytes, size);
    case Kind::answer:
      return decode_as<Answer>(from, bytes, size);
    case Kind::recall:
      return decode_as<Recall>(from, bytes, size);
    case Kind::limit:
      return decode_as<Limit>(from, bytes, size);
  }
  return std::nullopt;
}

}  // namespace pinion::firehose
