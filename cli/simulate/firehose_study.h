// The tables of `pinion simulate --study firehose`. docs/firehose-simulated.md explains them.
#pragma once

namespace pinion::cli {

void print_firehose_study(bool json);

}  // namespace pinion::cli
