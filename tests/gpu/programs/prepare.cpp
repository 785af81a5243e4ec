// Prepares host memory for the GPU by Pinion's C API, and measures what that costs others.
//
//   prepare time BYTES      untouched memory on hugepages; ms until it is ready, and the median of another
//                           thread's mmap and munmap meanwhile, us
//   prepare floor BYTES     the same memory touched by all cores and registered by four threads; ms
//   prepare beside BYTES    p99 of launches, us, and of pinned copies of 16 MiB, us, beside a preparation of
//                           touched memory; then both while nobody registers
//
// Driven by the script: see Talk.
#include <pinion/pinion.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "felt.h"
#include "program.h"

namespace {

using namespace pinion::gpu;

void need(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "%s: %s\n", what, pinion_last_error());
  give_up("Pinion refused");
}

/// Host memory is registered for the GPU, in a context that serves nothing else.
class Registrar {
 public:
  Registrar() {
    use_context();
    must(driver().context_create(&context_, 0, 0), "cuCtxCreate");
    use_context();
  }
  pinion_device_operations operations() {
    pinion_device_operations operations{};
    operations.size = sizeof operations;
    operations.version = PINION_DEVICE_VERSION;
    operations.flags = PINION_DEVICE_PRIVATE;
    operations.context = this;
    operations.register_memory = [](void* self, void* address, std::size_t bytes, unsigned,
                                    pinion_registration* registration) {
      registration->handle = reinterpret_cast<std::uint64_t>(address);
      return static_cast<Registrar*>(self)->run(
          [&] { return driver().host_register(address, bytes, kPortable); });
    };
    operations.deregister_memory = [](void* self, std::uint64_t handle) {
      return static_cast<Registrar*>(self)->run(
          [&] { return driver().host_unregister(reinterpret_cast<void*>(handle)); });
    };
    return operations;
  }

 private:
  template <class Call>
  int run(Call&& call) const {
    if (more_calls().push(context_) != kSuccess) return EIO;
    const Result result = call();
    Context popped = nullptr;
    more_calls().pop(&popped);
    return result == kSuccess ? 0 : EIO;
  }
  Context context_ = nullptr;
};

class Preparation {
 public:
  Preparation(Registrar& registrar, char* memory, std::size_t bytes, bool huge) {
    pinion_prepare_options options{};
    options.size = sizeof options;
    options.access = PINION_ACCESS_WRITE;
    options.hugepages = huge;
    const pinion_range range{memory, bytes};
    const pinion_device_operations operations = registrar.operations();
    need(pinion_domain_open_operations(&operations, &domain_), "pinion_domain_open_operations");
    need(pinion_prepare(domain_, &range, 1, &options, &preparation_), "pinion_prepare");
  }
  ~Preparation() {
    need(pinion_preparation_end(preparation_), "pinion_preparation_end");
    need(pinion_domain_close(domain_), "pinion_domain_close");
  }
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  bool wait(std::uint64_t nanoseconds) { return pinion_preparation_wait(preparation_, nanoseconds) == 0; }
  bool under_way() const { return state().error == EINPROGRESS; }
  bool complete() const { return state().error == 0 && state().prepared_bytes == state().bytes; }

 private:
  pinion_preparation_state state() const {
    pinion_preparation_state state{};
    state.size = sizeof state;
    need(pinion_preparation_poll(preparation_, &state), "pinion_preparation_poll");
    return state;
  }
  pinion_domain* domain_ = nullptr;
  pinion_preparation* preparation_ = nullptr;
};

/// Maps and unmaps in a thread of its own, and times it.
class Mapper {
 public:
  Mapper()
      : thread_([this] {
          while (!stop_) {
            const double began = now();
            void* const memory =
                ::mmap(nullptr, 64 * kKiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            ::munmap(memory, 64 * kKiB);
            times_.push_back(now() - began);
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
        }) {}
  double stop() {
    stop_ = true;
    thread_.join();
    return quantile(times_, .5);
  }

 private:
  std::vector<double> times_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

int time_of(std::size_t bytes) {
  Registrar registrar;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      char* const memory = map_memory(bytes, true);
      {
        Mapper mapper;
        const double began = now();
        Preparation preparation(registrar, memory, bytes, true);
        const bool ready = preparation.wait(UINT64_MAX) && preparation.complete();
        const double took = now() - began;
        talk.numbers(took / 1000, mapper.stop());
        if (!ready) talk.wrong("not all was prepared");
      }
      unmap_memory(memory, bytes);
    }
  }
  return talk.end();
}

int floor_of(std::size_t bytes) {
  const std::size_t piece = std::min(bytes, kGiB), pieces = bytes / piece;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      char* const memory = map_memory(bytes, true);
      Mapper mapper;
      const double began = now();
      touch(memory, bytes, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
      std::vector<std::thread> threads;
      std::atomic<std::size_t> next{0};
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
          use_context();
          for (std::size_t at; (at = next++) < pieces;) {
            must(driver().host_register(memory + at * piece, piece, kPortable), "cuMemHostRegister");
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      const double took = now() - began;
      talk.numbers(took / 1000, mapper.stop());
      for (std::size_t at = 0; at < pieces; ++at) driver().host_unregister(memory + at * piece);
      unmap_memory(memory, bytes);
    }
  }
  return talk.end();
}

int beside(std::size_t bytes) {
  Registrar registrar;
  Program program;
  char* const memory = map_memory(bytes);
  touch(memory, bytes, 8);
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      Felt quiet = alone(program, .3);
      Felt felt;
      Preparation preparation(registrar, memory, bytes, false);
      felt.sample(program, [&] { return preparation.under_way(); });
      if (!preparation.complete()) talk.wrong("not all was prepared");
      std::printf("%.6g %.6g %.6g %.6g\n", quantile(felt.launches, .99), quantile(felt.copies, .99),
                  quantile(quiet.launches, .99), quantile(quiet.copies, .99));
      std::fflush(stdout);
    }
  }
  return talk.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode != "time" && mode != "floor" && mode != "beside") {
    std::fprintf(stderr, "usage: prepare time|floor|beside BYTES\n");
    return 2;
  }
  const std::size_t bytes = bytes_of(argv[2]);
  use_context();
  if (mode == "floor") return floor_of(bytes);
  need(pinion_start("retention=leave-pinned"), "pinion_start");
  return mode == "time" ? time_of(bytes) : beside(bytes);
}
