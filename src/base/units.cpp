#include "base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <utility>

namespace pinion {

namespace {

template <class T>
std::optional<T> parse_scaled(std::string_view text,
                              std::initializer_list<std::pair<std::string_view, double>> units, double most) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || std::signbit(value) || !(value >= 0)) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  for (const auto& [name, scale] : units) {
    if (unit != name) continue;
    const double scaled = value * scale;
    if (scaled > most || (value > 0 && scaled < 1) || (scale == 1 && scaled != std::floor(scaled)))
      return std::nullopt;
    return static_cast<T>(std::llround(scaled));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr double k = 1024;
  return parse_scaled<std::uint64_t>(
      text, {{"", 1}, {"B", 1}, {"K", k}, {"M", k * k}, {"G", k * k * k}, {"T", k * k * k * k}},
      k * k * k * k * k * k);
}

std::optional<Duration> parse_duration(std::string_view text) {
  return parse_scaled<Duration>(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}, 1e18);
}

std::optional<double> parse_share(std::string_view text) {
  // The parts are millionths of a percent.
  const auto parts = parse_scaled<std::int64_t>(text, {{"%", 1e6}}, 100e6);
  if (!parts) return std::nullopt;
  return static_cast<double>(*parts) / 1e8;
}

std::string format_share(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g%%", share * 100);
  return text;
}

std::string format_size(std::uint64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units[unit];
}

std::string format_duration(Duration d) {
  if (d != 0 && d % kSecond == 0) return std::to_string(d / kSecond) + "s";
  if (d != 0 && d % kMillisecond == 0) return std::to_string(d / kMillisecond) + "ms";
  if (d != 0 && d % kMicrosecond == 0) return std::to_string(d / kMicrosecond) + "us";
  return std::to_string(d) + "ns";
}

}  // namespace pinion
