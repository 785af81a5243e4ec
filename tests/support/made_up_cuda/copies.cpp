#include "support/made_up_cuda/copies.h"

#include <algorithm>
#include <thread>

#include "support/made_up_cuda/captures.h"

namespace pinion::made_up_cuda {
namespace {

constexpr std::size_t kKiB = 1024;
/// A stream's staging memory, in a unit that divides by all counts below.
constexpr std::size_t kStaging = std::size_t{987} * 63 * 2;
/// A batch of more bytes waits.
constexpr std::size_t kBatchLimit = 57673216;
/// From this size on a batch reads its source after the call.
constexpr std::size_t kBatchLate = 1024 * kKiB;

WorkPointer make_work(std::function<Result()> run) {
  auto work = std::make_shared<Work>();
  work->run = std::move(run);
  return work;
}

/// Holds a flag while a call waits.
class Held {
 public:
  explicit Held(bool& flag) : flag_(flag) { flag_ = true; }
  ~Held() {
    flag_ = false;
    announce();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  bool& flag_;
};

/// Makes a copy while the call waits, in the calling thread.
Result copy_and_wait(Call& call, const StreamPointer& stream, const Transfer& transfer, bool async) {
  const std::shared_ptr<Context> context = stream->context;
  const WorkPointer work = make_work([transfer] { return run(transfer); });
  if (!async) {
    const Held all(context->held);
    return submit_and_run(call.lock(), stream, work, call.name());
  }
  const bool first = !context->registers_held;
  const Held in_stream(stream->held);
  if (!first) return submit_and_run(call.lock(), stream, work, call.name());
  const Held registers(context->registers_held);
  return submit_and_run(call.lock(), stream, work, call.name());
}

}  // namespace

std::size_t staging_of(std::size_t bytes) {
  if (bytes <= 4 * kKiB) return kStaging / 987;
  if (bytes <= 64 * kKiB) return kStaging / 63;
  return bytes <= 1024 * kKiB ? kStaging / 2 : kStaging;
}

bool has_staging_room(const Stream& stream, std::size_t staging) {
  return stream.staged == 0 || stream.staged + staging <= kStaging;
}

StagedCopy stage(Lock& lock, const Transfer& transfer) {
  StagedCopy made;
  if (!transfer.from.pageable() && !transfer.to.pageable()) {
    made.work = make_work([transfer] { return run(transfer); });
    return made;
  }
  if (transfer.to.device && transfer.bytes() <= world().settings.async_limit) {
    lock.unlock();
    const auto bytes = std::make_shared<const std::vector<char>>(gather(transfer));
    lock.lock();
    made.work = make_work([transfer, bytes] { return run(transfer, bytes.get()); });
    made.work->staging = staging_of(transfer.bytes());
    return made;
  }
  made.work = make_work([transfer] { return run(transfer); });
  made.waits = true;
  return made;
}

Result copy(Call& call, const StreamPointer& stream, Transfer transfer, bool async) {
  if (const Result refused = check_capture(*stream)) return refused;
  if (const Result refused = prepare(transfer)) return refused;
  if (transfer.bytes() == 0) return kSuccess;
  if (stream->capture) {
    record(*stream, {transfer, nullptr, nullptr});
    return kSuccess;
  }
  Context& context = *stream->context;
  const bool waits = !transfer.from.device || !transfer.to.device;
  const bool staged = async && transfer.from.pageable() && transfer.to.device &&
                      transfer.bytes() <= world().settings.async_limit;
  enter(call.lock(), *stream, call.name());
  const bool pageable = transfer.from.pageable() || transfer.to.pageable();
  if (waits) world().moved[staged ? kStaged : pageable ? kWaited : kPinned] += transfer.bytes();
  if (pageable && !staged) return copy_and_wait(call, stream, transfer, async);
  const WorkPointer work = stage(call.lock(), transfer).work;
  enter(call.lock(), *stream, call.name());
  if (!has_staging_room(*stream, work->staging)) {
    const Held in_stream(stream->held);
    wait(call.lock(), call.name(), [&] { return has_staging_room(*stream, work->staging); });
  }
  submit(stream, work);
  return async || !waits ? context.sticky : await(call.lock(), context, *work, call.name());
}

Result copy_batch(Call& call, const StreamPointer& stream, std::vector<Transfer> transfers,
                  AccessOrder order) {
  if (stream->legacy) return kInvalidValue;
  if (stream->capture) return kCaptureUnsupported;
  std::size_t bytes = 0;
  bool pageable = false;
  for (Transfer& transfer : transfers) {
    if (const Result refused = prepare(transfer)) return refused;
    bytes += transfer.bytes();
    pageable = pageable || transfer.from.pageable() || transfer.to.pageable();
  }
  enter(call.lock(), *stream, call.name());
  const bool waits =
      pageable &&
      ((order == AccessOrder::kStream && transfers.size() == 1) || bytes > kBatchLimit ||
       std::any_of(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.to.pageable(); }));
  const auto move_all = [transfers] {
    for (const Transfer& transfer : transfers) {
      if (const Result failed = run(transfer)) return failed;
    }
    return kSuccess;
  };
  if (waits) {
    const Held in_stream(stream->held);
    return submit_and_run(call.lock(), stream, make_work(move_all), call.name());
  }
  if (transfers.size() == 1 && pageable && bytes < kBatchLate) {
    const WorkPointer work = stage(call.lock(), transfers[0]).work;
    enter(call.lock(), *stream, call.name());
    submit(stream, work);
    return kSuccess;
  }
  const auto delay = world().settings.batch_delay;
  submit(stream, make_work([move_all, delay] {
           std::this_thread::sleep_for(delay);
           return move_all();
         }));
  return kSuccess;
}

}  // namespace pinion::made_up_cuda
