#include "support/made_up_cuda/submissions.h"

#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/registrations.h"

namespace pinion::made_up_cuda {
namespace {

/// Where the program finds the word; null: it is neither the device's nor registered.
void* find(const Word& word) {
  if (world().memory.allocation(word.address)) return world().memory.view(word.address);
  return registration_of(word.address) ? reinterpret_cast<void*>(word.address) : nullptr;
}

bool reached(const void* at, const Word& word, unsigned flags) {
  const std::uint64_t now = word.wide
                                ? __atomic_load_n(static_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE)
                                : __atomic_load_n(static_cast<const std::uint32_t*>(at), __ATOMIC_ACQUIRE);
  if (flags == 1) return now == word.value;
  // Words wrap around.
  return word.wide ? static_cast<std::int64_t>(now - word.value) >= 0
                   : static_cast<std::int32_t>(static_cast<std::uint32_t>(now - word.value)) >= 0;
}

}  // namespace

Result put(Call& call, const StreamPointer& stream, std::function<Result()> body) {
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) {
    record(*stream, {{}, std::move(body), nullptr});
    return kSuccess;
  }
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->run = std::move(body);
  submit(stream, work);
  return kSuccess;
}

Result launch_kernel(Call& call, const StreamPointer& stream, Handle function, void** parameters) {
  const auto kernel = world().kernels.find(function);
  if (!kernel || stream->context != call.context()) return kInvalidHandle;
  std::vector<unsigned long long> values(kernel->parameters.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(&values[i], parameters[i], kernel->parameters[i]);
  return put(call, stream, [kernel, values] {
    self().fault = false;
    if (kernel->body) kernel->body(values.data());
    return self().fault ? kIllegalAddress : kSuccess;
  });
}

Result record_event(Call& call, const StreamPointer& stream, Handle event) {
  const auto known = world().events.find(event);
  if (!known || known->context != stream->context) return kInvalidHandle;
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) {
    known->capture = stream->capture;
    return kSuccess;
  }
  known->capture.reset();
  enter(call.lock(), *stream, call.name());
  known->work = std::make_shared<Work>();
  submit(stream, known->work);
  return kSuccess;
}

Result wait_for_word(Call& call, const StreamPointer& stream, const Word& word, unsigned flags) {
  const void* const at = find(word);
  if (!at || flags > 1) return kInvalidValue;
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) return kNotSupported;
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->polls = true;
  work->ready = [at, word, flags] { return reached(at, word, flags); };
  submit(stream, work);
  return kSuccess;
}

Result write_word(Call& call, const StreamPointer& stream, const Word& word) {
  void* const at = find(word);
  if (!at) return kInvalidValue;
  return put(call, stream, [at, word] {
    if (word.wide) {
      __atomic_store_n(static_cast<std::uint64_t*>(at), word.value, __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(static_cast<std::uint32_t*>(at), static_cast<std::uint32_t>(word.value),
                       __ATOMIC_RELEASE);
    }
    return kSuccess;
  });
}

}  // namespace pinion::made_up_cuda
