#include "support/made_up_cuda/transfers.h"

#include <cstring>

#include "support/made_up_cuda/arrays.h"

namespace pinion::made_up_cuda {
namespace {

/// Keeps a registration pinned while a transfer runs. It may have ended since the call.
class Use {
 public:
  explicit Use(RegistrationPointer registration) : registration_(std::move(registration)) {
    if (!registration_) return;
    const Lock lock(world().mutex);
    held_ = registration_->alive;
    if (held_) ++registration_->uses;
  }
  ~Use() {
    if (!held_) return;
    const Lock lock(world().mutex);
    --registration_->uses;
    announce();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  bool valid() const { return held_ || !registration_; }

 private:
  RegistrationPointer registration_;
  bool held_ = false;
};

char* pointer(const Place& place, Address address) {
  return place.device ? world().memory.view(address) : reinterpret_cast<char*>(address);
}

/// Moves a row. False: memory is missing.
bool move_row(const Transfer& t, Address to, Address from, const char* staged) {
  const DeviceMemory& memory = world().memory;
  if (staged) {
    std::memcpy(pointer(t.to, to), staged, t.width);
  } else if (t.from.registration && t.to.device) {
    return move_pinned(t.from.registration->pins, {from, from + t.width}, memory.file(), memory.position(to),
                       true);
  } else if (t.from.device && t.to.registration) {
    return move_pinned(t.to.registration->pins, {to, to + t.width}, memory.file(), memory.position(from),
                       false);
  } else {
    std::memmove(pointer(t.to, to), pointer(t.from, from), t.width);
  }
  return true;
}

bool whole(const Transfer& t, const Place& place) { return place.pitch == t.width || t.height == 1; }

}  // namespace

Transfer Transfer::linear(Address to, Address from, std::size_t bytes) {
  Transfer made;
  made.from.address = from;
  made.to.address = to;
  made.from.pitch = made.to.pitch = made.from.slice = made.to.slice = made.width = bytes;
  return made;
}

Range Transfer::range(const Place& place) const {
  return {place.address, place.address + (depth - 1) * place.slice + (height - 1) * place.pitch + width};
}

Result prepare(Transfer& t, bool own_source) {
  DeviceMemory& memory = world().memory;
  if (t.bytes() == 0) return kSuccess;
  // Rows that follow each other directly are one row.
  if (t.depth == 1 && whole(t, t.from) && whole(t, t.to)) {
    t.width *= t.height;
    t.height = 1;
    t.from.pitch = t.to.pitch = t.width;
  }
  for (Place* const place : {&t.from, &t.to}) {
    if (own_source && place == &t.from) continue;
    const Range range = t.range(*place);
    if (range.begin == 0 || range.end < range.begin) return kInvalidValue;
    place->device = memory.is_device(range.begin);
    if (place->device) {
      if (!memory.holds(range)) return kInvalidValue;
    } else if (place->drivers) {
      continue;
    } else if (const Result refused = classify(range, place->registration)) {
      return refused;
    }
  }
  const bool read_only = t.to.registration && (t.to.registration->flags & gpu::kReadOnly);
  return read_only ? kInvalidValue : kSuccess;
}

std::vector<char> gather(const Transfer& t) {
  std::vector<char> bytes(t.bytes());
  char* next = bytes.data();
  for (std::size_t slice = 0; slice < t.depth; ++slice) {
    for (std::size_t row = 0; row < t.height; ++row, next += t.width) {
      const Address from = t.from.address + slice * t.from.slice + row * t.from.pitch;
      std::memcpy(next, pointer(t.from, from), t.width);
    }
  }
  return bytes;
}

namespace {

/// A failure that the test has ordered for this transfer, or success.
Result take_failure() {
  const Lock lock(world().mutex);
  Settings& settings = world().settings;
  if (settings.failing_transfer == 0 || --settings.failing_transfer > 0) return kSuccess;
  return settings.failing_with;
}

bool leaves_old_bytes(const Transfer& t) {
  if (!t.from.registration && !t.to.registration) return false;
  const Lock lock(world().mutex);
  return world().settings.leaves_old_bytes;
}

Result move_rows(const Transfer& t, const std::vector<char>* staged) {
  const char* next = staged ? staged->data() : nullptr;
  for (std::size_t slice = 0; slice < t.depth; ++slice) {
    for (std::size_t row = 0; row < t.height; ++row) {
      const Address from = t.from.address + slice * t.from.slice + row * t.from.pitch;
      const Address to = t.to.address + slice * t.to.slice + row * t.to.pitch;
      if (!move_row(t, to, from, next)) return kLaunchFailed;
      if (next) next += t.width;
    }
  }
  return kSuccess;
}

}  // namespace

Result run(const Transfer& t, const std::vector<char>* staged) {
  const Use from_use(staged ? nullptr : t.from.registration), to_use(t.to.registration);
  if (!from_use.valid() || !to_use.valid()) return kLaunchFailed;
  const Result ordered = take_failure();
  if (!ordered && !leaves_old_bytes(t)) return move_rows(t, staged);
  // A failure comes after a part of the work.
  Transfer part = t;
  (part.height > 1 ? part.height : part.width) /= 2;
  move_rows(part, staged);
  return ordered;
}

namespace {

enum MemoryType { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

/// One end as a shape describes it.
struct End {
  int type;
  const void* host;
  DevicePointer device;
  const void* array;
  std::size_t x, y, z, pitch, rows;
};

bool describe_end(const End& end, std::size_t width, Place& place) {
  Address base = end.type == kHost ? reinterpret_cast<Address>(end.host) : end.device;
  place.pitch = end.pitch ? end.pitch : width;
  std::size_t rows = end.rows;
  if (end.type == kArray) {
    const auto array = world().arrays.find(end.array);
    if (!array) return false;
    base = array->base;
    place.pitch = array->width;
    rows = array->height;
  } else if (end.type != kHost && end.type != kDevice && end.type != kUnified) {
    return false;
  }
  place.slice = place.pitch * rows;
  place.address = base + end.z * place.slice + end.y * place.pitch + end.x;
  return place.pitch >= width;
}

}  // namespace

bool describe(const gpu::Copy2D& s, Transfer& t) {
  t.width = s.width;
  t.height = s.height;
  const End from{s.source_type,
                 s.source_host,
                 s.source_device,
                 s.source_array,
                 s.source_x,
                 s.source_y,
                 0,
                 s.source_pitch,
                 0};
  const End to{s.target_type,
               s.target_host,
               s.target_device,
               s.target_array,
               s.target_x,
               s.target_y,
               0,
               s.target_pitch,
               0};
  return describe_end(from, s.width, t.from) && describe_end(to, s.width, t.to);
}

bool describe(const gpu::Copy3D& s, Transfer& t) {
  t.width = s.width;
  t.height = s.height;
  t.depth = s.depth;
  const std::size_t source_rows = s.source_height ? s.source_height : s.height;
  const std::size_t target_rows = s.target_height ? s.target_height : s.height;
  const End from{s.source_type, s.source_host, s.source_device, s.source_array, s.source_x,
                 s.source_y,    s.source_z,    s.source_pitch,  source_rows};
  const End to{s.target_type, s.target_host, s.target_device, s.target_array, s.target_x,
               s.target_y,    s.target_z,    s.target_pitch,  target_rows};
  return describe_end(from, s.width, t.from) && describe_end(to, s.width, t.to);
}

}  // namespace pinion::made_up_cuda
