// Measures what register and unregister cost, by size, pages and threads, and beside that what touching
// costs.
#include <sys/mman.h>

#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

const char* pages_name(Pages pages) { return pages == Pages::kBase ? "base pages" : "hugepages"; }

void costs_by_size(Pages pages) {
  Session session;
  char* const memory = map_memory(kGiB, pages);
  fill(memory, kGiB, 1, 8);
  for (const std::size_t bytes : {64 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB}) {
    Times in, out;
    const int runs = bytes >= 256 * kMiB ? 5 : bytes >= 16 * kMiB ? 15 : 101;
    for (int i = 0; i < runs; ++i) {
      const double began = now();
      must(driver().host_register(memory, bytes, kPortable), "cuMemHostRegister");
      const double registered = now();
      must(driver().host_unregister(memory), "cuMemHostUnregister");
      out.add(now() - registered);
      in.add(registered - began);
    }
    emit(format("%s, %s", size_name(bytes).c_str(), pages_name(pages)),
         format("register %s; unregister %s", in.summary().c_str(), out.summary().c_str()), "us",
         format("touched memory, median (p10..p90) of %d", runs));
  }
}

/// Lets each thread call body with its part.
void in_threads(Context context, int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      driver().context_set(context);
      body(i);
    });
  }
  for (std::thread& thread : all) thread.join();
}

void costs_by_threads(Pages pages) {
  constexpr std::size_t kPiece = 64 * kMiB, kAll = 2 * kGiB;
  Session session;
  char* const memory = map_memory(kAll, pages);
  fill(memory, kAll, 1, 8);
  for (const int threads : {1, 2, 4, 8}) {
    Times in, out;
    for (int run = 0; run < 3; ++run) {
      const double began = now();
      in_threads(session.context, threads, [&](int thread) {
        for (std::size_t at = kPiece * thread; at < kAll; at += kPiece * threads) {
          must(driver().host_register(memory + at, kPiece, kPortable), "cuMemHostRegister");
        }
      });
      const double registered = now();
      in_threads(session.context, threads, [&](int thread) {
        for (std::size_t at = kPiece * thread; at < kAll; at += kPiece * threads) {
          must(driver().host_unregister(memory + at), "cuMemHostUnregister");
        }
      });
      out.add((now() - registered) / 1e3);
      in.add((registered - began) / 1e3);
    }
    emit(format("2 GiB in pieces of 64 MiB, %d threads, %s", threads, pages_name(pages)),
         format("register %s; unregister %s", in.summary().c_str(), out.summary().c_str()), "ms",
         "touched memory, 3 runs");
  }
}

void costs_untouched(Pages pages) {
  Session session;
  constexpr std::size_t kAll = kGiB;
  for (const int threads : {0, 1, 2, 4, 8, 16}) {
    Times touch, in;
    for (int run = 0; run < 3; ++run) {
      char* const memory = map_memory(kAll, pages);
      const double began = now();
      if (threads) {
        in_threads(session.context, threads, [&](int thread) {
          const std::size_t part = kAll / threads;
          ::madvise(memory + part * thread, part, MADV_POPULATE_WRITE);
        });
      }
      const double touched = now();
      must(driver().host_register(memory, kAll, kPortable), "cuMemHostRegister");
      in.add((now() - touched) / 1e3);
      touch.add((touched - began) / 1e3);
      must(driver().host_unregister(memory), "cuMemHostUnregister");
      unmap_memory(memory, kAll);
    }
    emit(threads ? format("1 GiB faulted in by %d threads, %s", threads, pages_name(pages))
                 : format("1 GiB untouched, %s", pages_name(pages)),
         format("touch %s; register %s; sum %.4g", touch.summary().c_str(), in.summary().c_str(),
                touch.median() + in.median()),
         "ms", "MADV_POPULATE_WRITE by parts, then one register; 3 runs");
  }
}

/// Pinned memory that the driver allocates itself, such as a ring for staged copies.
void allocate_costs() {
  Session session;
  for (const std::size_t bytes : {kMiB, 32 * kMiB, 256 * kMiB}) {
    Times in, out;
    for (int i = 0; i < 5; ++i) {
      void* memory = nullptr;
      const double began = now();
      must(driver().allocate_host(&memory, bytes, kPortable), "cuMemHostAlloc");
      const double allocated = now();
      must(driver().free_host(memory), "cuMemFreeHost");
      out.add(now() - allocated);
      in.add(allocated - began);
    }
    emit("cuMemHostAlloc of " + size_name(bytes),
         format("%s; cuMemFreeHost %s", in.summary().c_str(), out.summary().c_str()), "us", "5 runs");
  }
}

/// Measures one more registration beside many live ones.
void many_live() {
  Session session;
  constexpr std::size_t kStep = 64 * kKiB;
  constexpr int kMany = 16384;
  char* const memory = map_memory(kStep * (kMany + 1));
  fill(memory, kStep * (kMany + 1), 1, 8);
  int live = 0;
  for (const int target : {0, 256, 4096, kMany}) {
    for (; live < target; ++live) {
      must(driver().host_register(memory + kStep * live, 4096, kPortable), "cuMemHostRegister");
    }
    char* const last = memory + kStep * kMany;
    Times in, out, asked, missed;
    for (int i = 0; i < 101; ++i) {
      unsigned type = 0;
      const double began = now();
      must(driver().host_register(last, 4096, kPortable), "cuMemHostRegister");
      const double registered = now();
      driver().pointer_attribute(&type, 2, reinterpret_cast<DevicePointer>(last));
      const double found = now();
      driver().pointer_attribute(&type, 2, reinterpret_cast<DevicePointer>(last - kStep / 2));
      const double lost = now();
      must(driver().host_unregister(last), "cuMemHostUnregister");
      out.add(now() - lost);
      missed.add((lost - found) * 1e3);
      asked.add((found - registered) * 1e3);
      in.add(registered - began);
    }
    emit(format("4 KiB beside %d live registrations", target),
         format("register %s us; unregister %s us; attribute, registered %.0f ns, pageable %.0f ns",
                in.summary().c_str(), out.summary().c_str(), asked.median(), missed.median()));
  }
}

}  // namespace

void add_costs(Experiments& all) {
  for (const Pages pages : {Pages::kBase, Pages::kHuge}) {
    all.push_back({"costs", 12, [=] { costs_by_size(pages); }});
    all.push_back({"costs", 12, [=] { costs_by_threads(pages); }});
    all.push_back({"costs", 25, [=] { costs_untouched(pages); }});
  }
  all.push_back({"costs", 6, allocate_costs});
  all.push_back({"costs", 8, many_live});
}

}  // namespace pinion::gpu
