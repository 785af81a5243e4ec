// The tables of `pinion simulate --study firehose`. evidence-simulated.md explains them.
#pragma once

namespace pinion::cli {

void print_firehose_study(bool json);

}  // namespace pinion::cli
