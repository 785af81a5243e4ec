// The pipeline protocol's model, by hand: a wire of 1 byte/ns, copies of 4 byte/ns, 1,000 ns a registered
// page.
#include <gtest/gtest.h>

#include "simulate/pipeline.h"

namespace pinion::simulate {
namespace {

constexpr std::size_t kPage = 4096;

class PipelineModel : public ::testing::Test {
 protected:
  PipelineModel() {
    if (page_size() != kPage) return;
    nic_.register_ns_per_page = 1000;
    nic_.deregister_ns_base = 500;
    machine_.network_bytes_per_second = 1e9;
    machine_.memory_bytes_per_second = 4e9;
    machine_.latency = 0;
    pipeline_ = {
        .piece_bytes = 2 * kPage, .chunk_bytes = kPage, .chunks = 4, .depth = 1, .register_from = 3 * kPage};
  }
  void SetUp() override {
    if (page_size() != kPage) GTEST_SKIP() << "pages of " << page_size() << " bytes";
  }
  Duration time(std::size_t bytes, Pieces pieces) {
    return pipeline_time(bytes, pieces, pipeline_, nic_, machine_);
  }

  CostModel nic_;
  Machine machine_;
  Pipeline pipeline_;
};

TEST_F(PipelineModel, ShortMessagesAreCopied) {
  // Each chunk is copied while the one before it is on the wire; the first copy is met by nothing.
  EXPECT_EQ(time(2 * kPage, Pieces::unregistered), 1024 + 2 * 4096);
  EXPECT_EQ(time(2 * kPage, Pieces::passing), 1024 + 2 * 4096);
  EXPECT_EQ(time(0, Pieces::passing), 0);
}

TEST_F(PipelineModel, RegistrationHidesBehindTheWire) {
  // The first chunk is on the wire from 1,024 to 5,120, while 2 pages are registered until 3,024.
  EXPECT_EQ(time(3 * kPage, Pieces::unregistered), 1024 + 3 * 4096);
  EXPECT_EQ(time(3 * kPage, Pieces::registered), 1024 + 3 * 4096);
  nic_.register_ns_per_page = 10'000;
  EXPECT_EQ(time(3 * kPage, Pieces::unregistered), 1024 + 20'000 + 2 * 4096);
}

TEST_F(PipelineModel, PiecesThatPassAreDeregisteredInTurn) {
  // Depth 1: the second piece is registered when the first has left the wire (13,312) and is gone (13,812).
  EXPECT_EQ(time(5 * kPage, Pieces::passing), 13'812 + 2000 + 2 * 4096 + 500);
  pipeline_.depth = 2;
  EXPECT_EQ(time(5 * kPage, Pieces::passing), 1024 + 5 * 4096 + 500);
}

TEST_F(PipelineModel, PeaksContainThePool) {
  EXPECT_EQ(pipeline_peak(2 * kPage, 3, true, pipeline_), 4 * kPage);
  EXPECT_EQ(pipeline_peak(5 * kPage, 3, true, pipeline_), 4 * kPage + 3 * 4 * kPage);
  EXPECT_EQ(pipeline_peak(5 * kPage, 3, false, pipeline_), 4 * kPage + 2 * kPage);
}

}  // namespace
}  // namespace pinion::simulate
