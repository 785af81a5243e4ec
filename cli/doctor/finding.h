// A finding of `pinion doctor`: a fact of this machine or environment, and its cure where it is a problem.
#pragma once

#include <optional>
#include <string>

namespace pinion::cli {

/// The gain of a cure, the most first: the order in which `pinion doctor` lists problems.
enum class Gain {
  start,         ///< programs run under Pinion at all
  data,          ///< data stay right
  acting,        ///< Pinion acts, instead of measuring
  keeping,       ///< registrations are kept beyond their transfer
  registration,  ///< transfers are registered
  memory,        ///< less stays pinned
  time           ///< registrations take less time
};

/// The person for a cure.
enum class Who { user, admin };

struct Cure {
  Gain gain;
  std::string effect;  ///< of the problem, as long as it lasts
  Who who;
  std::string text;  ///< with its command
};

struct Finding {
  std::string name, text;
  std::optional<Cure> cure;  ///< empty: it is fine
};

}  // namespace pinion::cli
