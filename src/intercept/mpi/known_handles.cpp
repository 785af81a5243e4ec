#include "intercept/mpi/known_handles.h"

namespace pinion::mpi {

namespace {
constinit KnownHandles g_communicators, g_datatypes, g_windows;
}  // namespace

KnownHandles& KnownHandles::communicators() { return g_communicators; }
KnownHandles& KnownHandles::datatypes() { return g_datatypes; }
KnownHandles& KnownHandles::windows() { return g_windows; }

}  // namespace pinion::mpi
