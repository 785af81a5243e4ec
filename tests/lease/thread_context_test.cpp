#include "lease/thread_context.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <vector>

namespace pinion {
namespace {

// A process has some thousand keys of thread-specific data, all of which the program may have taken.
TEST(ThreadContexts, WithoutAKeyThereIsNone) {
  void* const of_another = pthread_getspecific(0);
  std::vector<pthread_key_t> taken;
  for (pthread_key_t key; pthread_key_create(&key, nullptr) == 0;) taken.push_back(key);
  EXPECT_EQ(nullptr, this_thread());
  EXPECT_EQ(of_another, pthread_getspecific(0)) << "a key of somebody else's";
  for (const pthread_key_t key : taken) pthread_key_delete(key);
  EXPECT_EQ(nullptr, this_thread()) << "the program may take the key at any time";
}

}  // namespace
}  // namespace pinion
