// The outermost part of each wrapper: it finds the function behind it, keeps calls of other layers within the
// program's call out, and leaves the rest to the call's handler:
//
//   struct Handler {
//     using Function = Result(...);                       // the driver's
//     static Result handle(const From& from, Function* next, ...);
//   };
//
// Any thread, outside of memory hooks.
#pragma once

#include <cstdint>
#include <utility>

#include "callsite/unwind.h"
#include "intercept/cuda/calls.h"
#include "intercept/cuda/copy_call.h"
#include "intercept/cuda/outermost_call.h"

namespace pinion::cuda {

/// How a call came.
struct From {
  EntryFrame entry;
  Stream default_stream;

  Stream stream(Stream stream) const { return stream != nullptr ? stream : default_stream; }
};

template <std::size_t call, std::size_t layer, bool per_thread, class Handler,
          class Function = typename Handler::Function>
struct Wrapper;

template <std::size_t call, std::size_t layer, bool per_thread, class Handler, class... A>
struct Wrapper<call, layer, per_thread, Handler, Result(A...)> {
  static Result function(A... arguments) {
    const auto next =
        reinterpret_cast<Result (*)(A...)>(g_behind[call][layer].load(std::memory_order_acquire));
    const From from{EntryFrame::here(), per_thread ? kThreadStream : kLegacyStream};
    if constexpr (requires { Handler::kAlsoWithin; }) {
      return Handler::handle(from, next, arguments...);
    } else {
      OutermostCall outermost;
      if (!outermost.open()) [[unlikely]]
        return next(arguments...);
      return Handler::handle(from, next, arguments...);
    }
  }
};

/// A function of so many arguments that are integers or pointers, as all of the driver's are.
using Word = std::uintptr_t;
template <std::size_t>
using WordAt = Word;
template <class Places>
struct WordsOf;
template <std::size_t... place>
struct WordsOf<std::index_sequence<place...>> {
  using Function = Result(WordAt<place>...);
};
template <std::size_t count>
using FunctionOfWords = typename WordsOf<std::make_index_sequence<count>>::Function;

}  // namespace pinion::cuda
