#include "intercept/cuda/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace pinion::cuda {
namespace {

TEST(StreamCopy, CopiesEachByteAndNoOther) {
  const std::size_t room = 4096;
  std::vector<char> source(room), target(room), wanted(room);
  for (std::size_t i = 0; i < room; ++i) source[i] = static_cast<char>(i * 131 + (i >> 8));
  for (int width = 0; width <= static_cast<int>(widest_stream()); ++width) {
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 2048}) {
      for (const std::size_t from : {0, 1, 32, 63}) {
        for (const std::size_t to : {0, 1, 31, 64, 127}) {
          target.assign(room, 'x');
          wanted.assign(room, 'x');
          std::memcpy(wanted.data() + to, source.data() + from, bytes);
          stream_copy(static_cast<StreamWidth>(width), target.data() + to, source.data() + from, bytes);
          ASSERT_EQ(target, wanted) << bytes << " bytes from " << from << " to " << to << ", width " << width;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pinion::cuda
