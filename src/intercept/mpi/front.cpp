// The front for one ABI: its wrapper for each name. Those of calls that carry buffers are generated from
// calls.table.
#include "intercept/mpi/calls_handles.h"
#include "intercept/mpi/calls_requests.h"
#include "intercept/mpi/calls_session.h"
#include "intercept/mpi/calls_windows.h"
#include "wrappers.inc"
