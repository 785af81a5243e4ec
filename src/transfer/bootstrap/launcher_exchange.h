// Processes exchange their cards where they share no directory: by the service of their launcher, PMIx
// (mpirun of Open MPI, prte, Slurm) or else PMI-1 (hydra). Both are met as strangers' data: cards are
// checked.
//
// All processes of the job call it, each as often as the others. Beside MPI in the same process:
//   PMIx   the library is shared with MPI's. Call it where no thread begins or ends MPI.
//   PMI-1  is refused: its connection is MPI's alone. Name a directory instead.
//
// Ordinary code; one thread at a time.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/bootstrap/bootstrap.h"

namespace pinion::transfer {

/// Whether the launcher has such a service, by its variables.
bool launcher_exchanges();

/// All cards, by rank. ENOTSUP: there is no such service. EBUSY: MPI's connection, or used before (PMI-1
/// serves one exchange of a process). ETIMEDOUT: a process is missing.
Error exchange_by_launcher(const Card& own, Duration within, std::vector<Card>& cards);

/// Exchanges by PMI-1 over this socket.
Error exchange_by_pmi(int descriptor, const Card& own, Duration within, std::vector<Card>& cards);

}  // namespace pinion::transfer
