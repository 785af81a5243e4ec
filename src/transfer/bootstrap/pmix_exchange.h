// Cards by PMIx; launcher_exchange.h chooses it, and names its callers.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/bootstrap/bootstrap.h"

namespace pinion::transfer {

/// ENOENT: libpmix is missing.
Error exchange_by_pmix(const Card& own, Duration within, std::vector<Card>& cards);

}  // namespace pinion::transfer
