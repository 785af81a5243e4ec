#include "papers/patterns/noise.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "simulate/random.h"

namespace pinion::simulate {

namespace {

enum class Kind : std::uint8_t { none, uniform, spikes, warm_up, regime, drift, irregular };
constexpr std::pair<const char*, Kind> kNames[] = {
    {"none", Kind::none},     {"spikes", Kind::spikes}, {"warm-up", Kind::warm_up},
    {"regime", Kind::regime}, {"drift", Kind::drift},   {"irregular", Kind::irregular}};
constexpr double kSpikeEvery = 100 * kMillisecond;

class Noise final : public Disturbance {
 public:
  /// `share`: of kind uniform.
  Noise(Kind kind, double share, std::uint64_t seed) : kind_(kind), share_(share), random_(seed) {}

  Duration of(Duration compute, double progress) override {
    return compute == 0 ? compute : disturbed(compute, progress);
  }

 private:
  Duration disturbed(Duration compute, double progress);

  const Kind kind_;
  const double share_;
  Random random_;
};

Duration Noise::disturbed(Duration compute, double progress) {
  const auto nominal = static_cast<double>(compute);
  double factor = 1, more = 0;
  switch (kind_) {
    case Kind::none:
      break;
    case Kind::uniform:
      factor = random_.between(1 - share_, 1 + share_);
      break;
    case Kind::spikes:
      for (double left = nominal; random_.unit() < std::min(left, kSpikeEvery) / kSpikeEvery;
           left -= kSpikeEvery)
        more += random_.between(0.5 * kMillisecond, 2 * kMillisecond);
      break;
    case Kind::warm_up:
      factor = 1 + std::max(0.0, 1 - 20 * progress);
      break;
    case Kind::regime:
      factor = progress < 1.0 / 3 ? 1 : progress < 2.0 / 3 ? 1.5 : 0.75;
      break;
    case Kind::drift:
      factor = 1 + progress / 2;
      break;
    case Kind::irregular:
      factor = std::exp2(random_.between(-1, 1));
      break;
  }
  return std::llround(nominal * factor + more);
}

MakeDisturbance noise_of(Kind kind, double share) {
  if (kind == Kind::none) return {};
  return [=](std::uint64_t seed) { return std::make_unique<Noise>(kind, share, seed); };
}

}  // namespace

Error find_noise(const std::string& text, MakeDisturbance& disturbance) {
  for (const auto& [name, kind] : kNames) {
    if (text != name) continue;
    disturbance = noise_of(kind, 0);
    return {};
  }
  double percent = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (failed == std::errc{} && std::string(end) == "%" && percent >= 0 && percent <= 100) {
    disturbance = noise_of(Kind::uniform, percent / 100);
    return {};
  }
  std::string valid;
  for (const auto& [name, kind] : kNames) valid += std::string(", ") + name;
  return Error::make(EINVAL, "noise: '%s' is not one of: a share such as 1%%%s", text.c_str(), valid.c_str());
}

}  // namespace pinion::simulate
