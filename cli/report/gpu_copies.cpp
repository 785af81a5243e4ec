#include "cli/report/gpu_copies.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace pinion::cli {

namespace {

using runlog::Copies;
using runlog::CopyWay;
using runlog::GpuCopies;

constexpr std::array kWays{CopyWay::plain, CopyWay::staged, CopyWay::registered};

const Copies& of(const Copies (&ways)[runlog::kCopyWays], CopyWay way) {
  return ways[static_cast<unsigned>(way)];
}

/// Bytes a nanosecond are GB a second.
std::optional<double> speed(const Copies& copies) {
  if (copies.ns == 0) return std::nullopt;
  return static_cast<double>(copies.bytes) / static_cast<double>(copies.ns);
}

std::string speed_text(const Copies& copies) {
  const auto known = speed(copies);
  return known ? fmt::format("{:.1f} GB/s", *known) : "-";
}

/// The seconds that copies took less than at the speed of plain ones; nothing: none went plain.
std::optional<double> saved(const Copies (&ways)[runlog::kCopyWays]) {
  const auto plain = speed(of(ways, CopyWay::plain));
  if (!plain || *plain == 0) return std::nullopt;
  double ns = 0;
  for (const CopyWay way : {CopyWay::staged, CopyWay::registered}) {
    const Copies& copies = of(ways, way);
    ns += static_cast<double>(copies.bytes) / *plain - static_cast<double>(copies.ns);
  }
  return ns / 1e9;
}

void add_rows(Table& table, const char* direction, const Copies (&ways)[runlog::kCopyWays]) {
  for (const CopyWay way : kWays) {
    const Copies& copies = of(ways, way);
    if (copies.count == 0) continue;
    table.add({direction, to_string(way), count_text(copies.count),
               bytes_text(static_cast<double>(copies.bytes)), speed_text(copies)});
  }
}

Json copy_counts(const Copies& copies) {
  return {
      {"count", copies.count}, {"bytes", copies.bytes}, {"seconds", static_cast<double>(copies.ns) / 1e9}};
}

Json direction_json(const Copies (&ways)[runlog::kCopyWays]) {
  Json json = Json::object();
  for (const CopyWay way : kWays) json[to_string(way)] = copy_counts(of(ways, way));
  return json;
}

}  // namespace

Table gpu_copies_table(const GpuCopies& copies) {
  Table table({"direction", "way", "copies", "bytes", "speed"});
  add_rows(table, "to GPU", copies.to_gpu);
  add_rows(table, "from GPU", copies.from_gpu);
  return table;
}

std::string gpu_copies_text(const GpuCopies& copies) {
  std::uint64_t fast = 0, all = 0;
  for (const CopyWay way : kWays) {
    const std::uint64_t bytes = of(copies.to_gpu, way).bytes + of(copies.from_gpu, way).bytes;
    all += bytes;
    if (way != CopyWay::plain) fast += bytes;
  }
  std::string out = fmt::format("GPU copies: {} of {} went staged or registered",
                                bytes_text(static_cast<double>(fast)), bytes_text(static_cast<double>(all)));
  const auto in = saved(copies.to_gpu), back = saved(copies.from_gpu);
  const double seconds = in.value_or(0) + back.value_or(0);
  if ((in || back) && seconds > 0)
    out += fmt::format(", {} sooner than at the speed of this run's plain copies", seconds_text(seconds));
  if (copies.verified > 0)
    out += fmt::format("; of {} verified, {} differed", count_text(copies.verified),
                       count_text(copies.differing));
  return out;
}

Json to_json(const GpuCopies& copies) {
  return {{"to_gpu", direction_json(copies.to_gpu)},
          {"from_gpu", direction_json(copies.from_gpu)},
          {"verified", copies.verified},
          {"differing", copies.differing}};
}

}  // namespace pinion::cli
