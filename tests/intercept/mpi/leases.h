// For unit tests of the MPI front's parts: an engine with retention on-demand, where the registered bytes
// show which leases are out, and memory to lease.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "process/engine.h"

namespace pinion::mpi {

class LeasesTest : public ::testing::Test {
 protected:
  LeasesTest() : memory_(kPages * page_size()) {
    Options options;
    options.retention = RetentionKind::on_demand;
    options.device = "pin";
    const Error error = Engine::start(options, {}, "test");
    EXPECT_FALSE(error) << error.message;
    engine_ = Engine::running();
    leases_ = &engine_->lease_path();
    thread_ = this_thread();
  }
  ~LeasesTest() override { Engine::stop(); }

  /// The address of a page.
  Address page(std::size_t number) const {
    return page_ceil(reinterpret_cast<Address>(memory_.data())) + number * page_size();
  }
  /// A lease of `pages` pages from page `first` on.
  Transfer lease(std::size_t first, std::size_t pages) {
    Transfer transfer;
    leases_->lease(*thread_, 0, {}, {page(first), page(first + pages)}, Access::read, transfer);
    return transfer;
  }
  std::size_t leased_pages() { return engine_->counters().all().registered_now_bytes / page_size(); }
  std::uint64_t acquires() { return engine_->counters().all().acquires; }

  static constexpr std::size_t kPages = 64;
  std::vector<char> memory_;
  Engine* engine_;
  LeasePath* leases_;
  ThreadContext* thread_;
};

}  // namespace pinion::mpi
