#include "base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace pinion {

namespace {

/// `scale_of`: the value of a unit, by its name; 0: there is no such unit.
template <class T, class Scale>
std::optional<T> parse_scaled(std::string_view text, Scale scale_of, double most) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || std::signbit(value) || !(value >= 0)) return std::nullopt;
  const double scale = scale_of({rest, static_cast<std::size_t>(text.data() + text.size() - rest)});
  const double scaled = value * scale;
  if (scale == 0 || scaled > most || (value > 0 && scaled < 1) ||
      (scale == 1 && scaled != std::floor(scaled)))
    return std::nullopt;
  return static_cast<T>(std::llround(scaled));
}

/// "K", "KB" and "KiB", in any case, are 1024; "M", "G" and "T" alike.
double scale_of_size(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  static constexpr std::string_view kLetters = "KMGT";
  const std::size_t power = kLetters.find(static_cast<char>(unit[0] & ~0x20));
  const std::string_view rest = unit.substr(1);
  const bool valid = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  return power != kLetters.npos && valid ? std::exp2(10 * (power + 1)) : 0;
}

double scale_of_duration(std::string_view unit) {
  if (unit == "ns") return 1;
  return unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  return parse_scaled<std::uint64_t>(text, scale_of_size, std::exp2(60));
}

std::optional<Duration> parse_duration(std::string_view text) {
  return parse_scaled<Duration>(text, scale_of_duration, 1e18);
}

std::optional<double> parse_share(std::string_view text) {
  // The parts are millionths of a percent.
  const auto parts = parse_scaled<std::int64_t>(
      text, [](std::string_view unit) { return unit == "%" ? 1e6 : 0; }, 100e6);
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
