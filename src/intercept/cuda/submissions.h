// The handlers of calls that put work into a stream, and take no host memory: they wait while another thread
// has the stream for a staged copy (submission_gate.h). Any thread, outside of memory hooks.
#pragma once

#include "intercept/cuda/submission_gate.h"
#include "intercept/cuda/wrapper.h"

namespace pinion::cuda {

/// The stream is the argument at `place` of `count`.
template <std::size_t place, std::size_t count>
struct Submission {
  using Function = FunctionOfWords<count>;
  template <class... A>
  [[gnu::always_inline]] static Result handle(const From& from, Function* next, A... arguments) {
    const Word words[] = {arguments...};
    const Kept<SubmissionGate::Entry> entry(submission_gate(),
                                            from.stream(reinterpret_cast<Stream>(words[place])));
    return next(arguments...);
  }
};

/// The stream is the default one.
template <std::size_t count>
struct SubmissionByDefault {
  using Function = FunctionOfWords<count>;
  template <class... A>
  [[gnu::always_inline]] static Result handle(const From& from, Function* next, A... arguments) {
    const Kept<SubmissionGate::Entry> entry(submission_gate(), from.default_stream);
    return next(arguments...);
  }
};

/// The call concerns all streams of a context.
template <std::size_t count>
struct SubmissionToAll {
  using Function = FunctionOfWords<count>;
  template <class... A>
  [[gnu::always_inline]] static Result handle(const From&, Function* next, A... arguments) {
    const Kept<SubmissionGate::Entry> entry(submission_gate());
    return next(arguments...);
  }
};

struct LaunchWithConfig {
  struct Config {
    unsigned sizes[7];
    Stream stream;  ///< attributes follow
  };
  using Function = Result(const Config*, void*, void**, void**);
  [[gnu::always_inline]] static Result handle(const From& from, Function* next, const Config* config,
                                              void* function, void** parameters, void** extra) {
    const Stream stream = from.stream(config != nullptr ? config->stream : nullptr);
    const Kept<SubmissionGate::Entry> entry(submission_gate(), stream);
    return next(config, function, parameters, extra);
  }
};

}  // namespace pinion::cuda
