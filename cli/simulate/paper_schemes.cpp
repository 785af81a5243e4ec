// The paper's Figures 2, 9 and 10, its microbenchmark under the schemes that MPI libraries have; Figure 3, a
// limit; and section 4.3, the cost of recording a transfer.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/units.h"
#include "cli/bench/parts.h"
#include "cli/simulate/paper_parts.h"
#include "simulate/pipeline.h"

namespace pinion::cli {

namespace {

using simulate::Result;
using simulate::Workload;

constexpr std::size_t kMessages = 30;  ///< ten turns of three
constexpr std::size_t kBuffers = 3;

/// Of one message, in seconds: in the network, and registration on its way.
double network_time(std::uint64_t bytes) {
  const simulate::Machine machine;
  return static_cast<double>(machine.latency) * 1e-9 +
         static_cast<double>(bytes) / machine.network_bytes_per_second;
}
double message_time(std::uint64_t bytes, const Result& result) {
  return network_time(bytes) + result.cost.registration() / kMessages;
}

struct Schemes {
  Result on_demand, pinned, helper;
  explicit Schemes(const Workload& workload)
      : on_demand(under(RetentionKind::on_demand, workload)),
        pinned(under(RetentionKind::leave_pinned, workload)),
        helper(under(RetentionKind::helper, workload)) {}
};

// The paper's bytes contain bounce buffers in all schemes.
constexpr const char* kPipelineText =
    "rows of the pipeline protocol are a model, and count its pool of 2 MiB for both sides of the "
    "comparison; "
    "--from has it measured";

double with_pool(double bytes) {
  return bytes + static_cast<double>(simulate::pipeline_peak(0, 0, false, {}));
}
/// Of messages of 4 MiB.
double pipeline_peak_bytes(std::size_t buffers, bool pinned) {
  return static_cast<double>(simulate::pipeline_peak(4 << 20, buffers, pinned, {}));
}

/// Of one message, in seconds, under the pipeline protocol. `first_uses`: of kMessages, the messages whose
/// memory is met for the first time.
double pipeline_message_time(std::uint64_t bytes, bool pinned, std::size_t first_uses) {
  const auto seconds = [&](simulate::Pieces pieces) {
    const CostModel nic = *paper_settings(RetentionKind::helper).nic;
    return 1e-9 * static_cast<double>(simulate::pipeline_time(bytes, pieces, {}, nic, {}));
  };
  if (!pinned) return seconds(simulate::Pieces::passing);
  const double share = static_cast<double>(first_uses) / kMessages;
  return share * seconds(simulate::Pieces::unregistered) +
         (1 - share) * seconds(simulate::Pieces::registered);
}

/// Message latency of a pattern, NAME:SIZE:2, over that under leave-pinned.
void add_latencies(PaperResult& result, const std::string& name, std::size_t first_uses) {
  for (const char* size : {"64K", "256K", "1M", "4M", "16M"}) {
    const std::uint64_t bytes = *parse_size(size);
    const Schemes schemes(paper_workload(fmt::format("{}:{}:2", name, size)));
    const auto add = [&](const char* how, double seconds) {
      result.rows.push_back({fmt::format("{}: {} over leave-pinned, a message", size, how),
                             "%",
                             {},
                             longer(seconds, message_time(bytes, schemes.pinned))});
    };
    add("helper", message_time(bytes, schemes.helper));
    add("on-demand", message_time(bytes, schemes.on_demand));
    add("pipeline, not pinned", pipeline_message_time(bytes, false, first_uses));
    add("pipeline, pinned", pipeline_message_time(bytes, true, first_uses));
  }
}

}  // namespace

PaperResult paper_figure_2() {
  PaperResult result{
      "Figure 2",
      "Registered memory and communication time of traditional schemes, 5 MB messages",
      "Figure 1's program, ten turns; the sender's three buffers; a message takes 3.5 ms on the network",
      {}};
  constexpr std::uint64_t kBytes = 5 << 20;
  const Schemes schemes(paper_workload("reuse:5M:2"));
  const auto over_pinned = [&](const Result& of) {
    return longer(message_time(kBytes, of), message_time(kBytes, schemes.pinned));
  };
  result.rows = {
      {"communication takes longer without leave-pinned", "%", 25.83, over_pinned(schemes.on_demand)},
      {"the same, under the helper", "%", {}, over_pinned(schemes.helper)},
      {"peak under leave-pinned", "MiB", {}, peak_of(schemes.pinned) / (1 << 20)},
      {"peak without leave-pinned", "MiB", {}, peak_of(schemes.on_demand) / (1 << 20)},
      {"peak under the helper", "MiB", {}, peak_of(schemes.helper) / (1 << 20)},
  };
  return result;
}

PaperResult paper_figure_3() {
  PaperResult result{"Figure 3",
                     "A limit on registered memory prevents execution: FT.D on 2x16 ranks, leave-pinned",
                     "one rank a node; where the paper's library fails, Pinion lets idle registrations go",
                     {}};
  constexpr std::uint64_t kLimit = 3'000'000'000;
  const Workload ft = paper_workload("ft:D:2x16");
  const Result free = under(RetentionKind::leave_pinned, ft);
  const Result limited = under(RetentionKind::leave_pinned, ft, kLimit);
  result.rows = {
      {"a rank needs", "GB", 3.58, peak_of(free) / 1e9},
      {"of which beyond three arrays", "GB", 3.58 - 3 * (1u << 30) / 1e9,
       peak_of(free) / 1e9 - 3 * (1u << 30) / 1e9},
      {"the limit", "GB", 3, kLimit / 1e9},
      {"transfers of all ranks", "", {}, static_cast<double>(limited.acquires.total)},
      {"without a registration of their own, no limit", "", {}, static_cast<double>(free.acquires.misses)},
      {"the same, with the limit", "", {}, static_cast<double>(limited.acquires.misses)},
  };
  return result;
}

PaperResult paper_figure_9() {
  PaperResult result{"Figure 9",
                     "Buffer reuse: registered memory with 4 MB messages, and message latency",
                     fmt::format("Figure 1's program, ten turns; {}", kPipelineText),
                     {}};
  const Schemes schemes(paper_workload("reuse:4M:2"));
  result.rows = {
      {"helper against leave-pinned: peak saved", "%", 24.75,
       saved(peak_of(schemes.helper), peak_of(schemes.pinned))},
      {"helper against leave-pinned: mean saved",
       "%",
       {},
       saved(schemes.helper.registered.mean, schemes.pinned.registered.mean)},
      {"helper against pipeline, not pinned: saved", "%", 3.84,
       saved(with_pool(peak_of(schemes.helper)), pipeline_peak_bytes(kBuffers, false))},
      {"helper against pipeline, pinned: saved", "%", 21.04,
       saved(with_pool(peak_of(schemes.helper)), pipeline_peak_bytes(kBuffers, true))},
  };
  add_latencies(result, "reuse", kBuffers);
  return result;
}

PaperResult paper_figure_10() {
  PaperResult result{
      "Figure 10",
      "No buffer reuse: registered memory with 4 MB messages, and message latency",
      fmt::format("Figure 1's program, each of 30 messages from memory of its own; {}", kPipelineText),
      {}};
  const Schemes schemes(paper_workload("no-reuse:4M:2"));
  result.rows = {
      {"peak of leave-pinned over helper's", "times", 4.62,
       peak_of(schemes.pinned) / peak_of(schemes.helper)},
      {"peak of pipeline, pinned, over helper's", "times", 3.31,
       pipeline_peak_bytes(kMessages, true) / with_pool(peak_of(schemes.helper))},
      {"peak of pipeline, not pinned, over helper's", "times", 1.0384,
       pipeline_peak_bytes(kMessages, false) / with_pool(peak_of(schemes.helper))},
  };
  add_latencies(result, "no-reuse", kMessages);
  return result;
}

PaperResult paper_overhead() {
  PaperResult result{"Section 4.3",
                     "Overhead of recording a transfer on its critical path: call site, time stamp, queue",
                     "recording is measured on this machine (`pinion bench signature`, the least of nine "
                     "rounds), a message takes 2 us and its "
                     "bytes at 1.5 GB/s",
                     {},
                     "Measured and modelled"};
  double recording = recording_ns();
  for (int round = 1; round < 9; ++round) recording = std::min(recording, recording_ns());
  result.rows.push_back({"recording a transfer", "ns", {}, recording});
  for (const auto& [size, paper] : {std::pair{"17K", 14.02}, std::pair{"1M", 4.58}, std::pair{"4M", 1.22}})
    result.rows.push_back({fmt::format("overhead of a message of {}", size), "%", paper,
                           100 * recording * 1e-9 / network_time(*parse_size(size))});
  return result;
}

}  // namespace pinion::cli
