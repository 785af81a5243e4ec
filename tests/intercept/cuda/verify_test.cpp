// The option verify from outside (program.h): copies that bring old bytes are found, and no others.
#include <string>

#include "intercept/cuda/program.h"

namespace pinion::test {
namespace {

class CudaVerify : public CudaProgram {
 protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("PINION", options_, 1), 0);  // read at the first copy
    CudaProgram::SetUp();
  }
  /// What the process says meanwhile.
  template <class Do>
  static std::string said(Do&& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  }
  void copy_in(const Memory& memory) const {
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), memory.bytes()), kSuccess);
  }
  const char* options_ = "verify=100%";
};

TEST_F(CudaVerify, RegisteredCopiesThatBringOldBytesAreFound) {
  Memory memory(kBytes);
  ASSERT_EQ(said([&] { ASSERT_TRUE(register_by_use(memory)); }), "") << "copies without a fault";
  memory.fill(101);
  EXPECT_EQ(said([&] { copy_in(memory); }), "");
  memory.fill(102);
  madeUpLeaveOldBytes(1);
  std::string line = said([&] { copy_in(memory); });
  EXPECT_EQ(line.rfind("pinion: a copy brought other bytes (registered, cuMemcpyHtoD): 8388608 bytes", 0), 0u)
      << line;
  EXPECT_NE(line.find("byte 4194304"), std::string::npos) << line;
  madeUpLeaveOldBytes(0);
  copy_in(memory);
  memory.fill(103);
  madeUpLeaveOldBytes(1);
  line = said([&] { ASSERT_EQ(cuMemcpyDtoHAsync_v2(memory.data(), device_, kBytes, stream_), kSuccess); });
  EXPECT_NE(line.find("(registered, cuMemcpyDtoHAsync)"), std::string::npos) << line;
}

TEST_F(CudaVerify, StagedCopiesThatBringOldBytesAreFound) {
  Memory memory(kBytes);
  memory.fill(1);
  EXPECT_EQ(said([&] { copy_in(memory); }), "");
  memory.fill(2);
  madeUpLeaveOldBytes(1);
  const std::string line = said([&] { copy_in(memory); });
  EXPECT_NE(line.find("(staged, cuMemcpyHtoD)"), std::string::npos) << line;
}

struct CudaUnverified : CudaVerify {
  CudaUnverified() { options_ = "verify=off"; }
};

TEST_F(CudaUnverified, NothingIsSaid) {
  Memory memory(kBytes);
  memory.fill(1);
  copy_in(memory);
  memory.fill(2);
  madeUpLeaveOldBytes(1);
  const unsigned long long copied = madeUpCalls("cuMemcpyDtoHAsync_v2");
  EXPECT_EQ(said([&] { copy_in(memory); }), "");
  EXPECT_EQ(madeUpCalls("cuMemcpyDtoHAsync_v2"), copied);
}

}  // namespace
}  // namespace pinion::test
