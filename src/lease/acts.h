// Pinion's part in the registrations of a process: it registers beside the MPI library (an explicit
// device), acts below the libraries that register with the NIC (front verbs), or only measures. Rules and
// words; stateless, ordinary code.
#pragma once

#include <string>
#include <string_view>

#include "lease/engine_options.h"
#include "runlog/format.h"

namespace pinion {

using runlog::Acts;

/// In summaries, reports and checks.
inline constexpr const char* kMeasuredOnly =
    "measured only: no NIC registers here; your MPI's own registrations are unchanged";
inline constexpr const char* kBesideMpi =
    "registered with a device of its own, beside the MPI library's own registrations, which stay";
inline constexpr const char* kGpuCopies = "makes the program's copies to and from GPUs (front cuda)";
inline constexpr const char* kBelowLibraries =
    "registers with the program's own RDMA devices, below its libraries (front verbs)";

/// The acts until something is registered.
Acts acts_at_start(const Options& options);

/// Whether the program has loaded NVIDIA's driver, so that it may copy to and from GPUs.
bool gpu_driver_is_loaded();

/// Whether registrations that a library makes in this process are met: by choice, or, by default, where they
/// can reach a NIC of this node.
bool may_act_below(const Options& options);

/// True if a node has a NIC that those registrations can reach.
bool may_act_below_somewhere(const Options& options);

/// Whether registration caches above the verbs front go off where Pinion acts below. On a node with a GPU
/// they stay: the front does not keep registrations of GPU memory, which a library without its cache would
/// register for each message. That a program uses no GPU is not known before it runs.
bool may_switch_caches_off(const Options& options);

/// The variable by which `pinion run` names the settings that switch off registration caches above the verbs
/// front: "NAME=VALUE NAME=VALUE". The preload makes them where may_switch_caches_off(); those that begin
/// with kInMpi while MPI begins. Those that begin with kKept bound a cache that stays on: it makes them
/// wherever may_act_below().
inline constexpr const char* kCachesOffVariable = "PINION_CACHES_OFF";
inline constexpr std::string_view kInMpi = "mpi:";
inline constexpr std::string_view kKept = "kept:";

}  // namespace pinion
