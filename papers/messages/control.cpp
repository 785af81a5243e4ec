#include "papers/messages/control.h"

#include <cerrno>
#include <cstring>

namespace pinion::transfer {

namespace {

constexpr std::uint8_t kVersion = 1;

struct Record {
  std::uint8_t version;
  std::uint8_t kind;
  std::uint16_t code;
  std::uint32_t raw_bytes;
  std::uint64_t message, total, offset, bytes, address, key;
};

/// A raw key follows: its base, then the key itself.
constexpr std::size_t kBase = sizeof(std::uint64_t);
static_assert(sizeof(Record) + kBase + RawKey::kMost == kMostControlBytes);

bool has_fields_of_its_kind(const Control& c) {
  const bool segment_fits = c.bytes <= kMostBytes && c.offset <= kMostBytes - c.bytes;
  const bool no_source = c.source.address == 0 && c.source.key == 0 && c.source.raw.bytes == 0;
  const bool no_span = c.offset == 0 && c.bytes == 0;
  switch (c.kind) {
    case ControlKind::announce:
      return c.code == 0 && c.total <= kMostBytes && c.offset == 0 && c.bytes <= c.total &&
             (c.bytes > 0 || no_source);
    case ControlKind::segment:
      return c.code == 0 && c.total == 0 && c.bytes > 0 && segment_fits;
    case ControlKind::accept:
      return c.code == 0 && c.total == 0 && no_span && no_source;
    case ControlKind::pulled:
      return c.code == 0 && c.total == 0 && c.bytes > 0 && segment_fits && no_source;
    case ControlKind::refuse:
      return (c.code == EMSGSIZE || c.code == EIO) && c.total == 0 && no_span && no_source;
  }
  return false;
}

}  // namespace

ControlRecord encode(const Control& control) {
  const Record record{kVersion,
                      static_cast<std::uint8_t>(control.kind),
                      control.code,
                      control.source.raw.bytes,
                      control.message,
                      control.total,
                      control.offset,
                      control.bytes,
                      control.source.address,
                      control.source.key};
  const RawKey& raw = control.source.raw;
  ControlRecord bytes(sizeof record + (raw.bytes > 0 ? kBase + raw.bytes : 0));
  std::memcpy(bytes.data(), &record, sizeof record);
  if (raw.bytes > 0) {
    std::memcpy(bytes.data() + sizeof record, &raw.base, kBase);
    std::memcpy(bytes.data() + sizeof record + kBase, raw.data.data(), raw.bytes);
  }
  return bytes;
}

bool decode(const void* payload, std::size_t bytes, Control& control) {
  Record record;
  if (bytes < sizeof record) return false;
  std::memcpy(&record, payload, sizeof record);
  if (record.version != kVersion || record.raw_bytes > RawKey::kMost ||
      bytes != sizeof record + (record.raw_bytes > 0 ? kBase + record.raw_bytes : 0))
    return false;
  control = {static_cast<ControlKind>(record.kind),
             record.code,
             record.message,
             record.total,
             record.offset,
             record.bytes,
             {record.address, record.key}};
  if (record.raw_bytes > 0) {
    const auto* const behind = static_cast<const unsigned char*>(payload) + sizeof record;
    RawKey& raw = control.source.raw;
    raw.bytes = record.raw_bytes;
    std::memcpy(&raw.base, behind, kBase);
    std::memcpy(raw.data.data(), behind + kBase, raw.bytes);
  }
  return has_fields_of_its_kind(control);
}

}  // namespace pinion::transfer
