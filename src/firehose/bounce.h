// Strategy `bounce`: everything goes by active messages. No process registers memory for its peers.
#pragma once

#include "firehose/courier.h"
#include "firehose/strategy.h"
#include "firehose/ways.h"

namespace pinion::firehose {

class Bounce final : public Strategy {
 public:
  explicit Bounce(Ways& ways) : ways_(ways) {}
  void begin(std::span<Part* const> parts) override {
    for (Part* const part : parts) ways_.courier->by_message(*part);
  }

 private:
  Ways& ways_;
};

}  // namespace pinion::firehose
