// The threads that copy beside the callers of staged copies.
#include "intercept/cuda/copy_threads.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "support/in_child.h"

namespace pinion::cuda {
namespace {

constexpr std::size_t kPieces = 500;

/// Runs a job of kPieces as a staged copy does: so many in flight, finished in order.
void run_job(CopyThreads& threads) {
  std::vector<int> copied(kPieces, 0);
  const auto copy = [&](std::size_t piece, Copier) { return ++copied[piece] > 0; };
  CopyThreads::Job job(threads, copy);
  std::size_t posted = 0;
  for (std::size_t done = 0; done < kPieces; ++done) {
    posted = std::min(kPieces, done + staging::kMostInFlight - 1);
    job.post(posted);
    while (!job.is_done(done)) {
      if (!job.help()) job.wait(done);
    }
    ASSERT_EQ(copied[done], 1);
  }
  EXPECT_FALSE(job.help());
}

TEST(CopyThreads, CopyEachPieceOnce) {
  for (int i = 0; i < 20; ++i) run_job(copy_threads());
}

TEST(CopyThreads, ServeSeveralCallers) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([] {
      for (int j = 0; j < 10; ++j) run_job(copy_threads());
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(CopyThreads, HelpACallerThatDoesNothing) {
  std::atomic<std::size_t> copied{0};
  const auto copy = [&](std::size_t, Copier) { return ++copied > 0; };
  CopyThreads::Job job(copy_threads(), copy);
  job.post(10);
  EXPECT_TRUE(test::eventually([&] { return copied == 10; }));
  for (std::size_t piece = 0; piece < 10; ++piece) job.wait(piece);
}

TEST(CopyThreads, AnEndedJobIsLeftAlone) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> inside{0};
    const auto copy = [&](std::size_t, Copier) {
      ++inside;
      std::this_thread::yield();
      --inside;
      return true;
    };
    {
      CopyThreads::Job job(copy_threads(), copy);
      job.post(20);
      job.help();
    }
    ASSERT_EQ(inside, 0);
  }
}

TEST(CopyThreads, LeaveAPieceThatFaultsToTheCaller) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<std::size_t> refused{0};
  std::vector<std::thread::id> copied(10);
  const auto copy = [&](std::size_t piece, Copier copier) {
    if (copier == Copier::helper) {
      ++refused;
      return false;
    }
    copied[piece] = std::this_thread::get_id();
    return true;
  };
  {
    CopyThreads::Job job(copy_threads(), copy);
    job.post(10);
    ASSERT_TRUE(test::eventually([&] { return refused == 10; }));
    EXPECT_FALSE(job.help()) << "all have begun";
    for (std::size_t piece = 0; piece < 10; ++piece) {
      job.wait(piece);
      EXPECT_TRUE(job.is_done(piece));
      EXPECT_EQ(copied[piece], caller);
    }
  }
  CopyThreads::Job unfinished(copy_threads(), copy);
  unfinished.post(3);
  ASSERT_TRUE(test::eventually([&] { return refused == 13; })) << "and the end waits for nobody";
}

TEST(CopyThreads, APieceThatTheCallerIsThrownOutOfHoldsNobodyUp) {
  std::atomic<bool> thrown{false};
  const auto copy = [&](std::size_t, Copier copier) {
    if (copier == Copier::caller) throw 1;
    while (!thrown) std::this_thread::yield();
    return true;
  };
  CopyThreads::Job job(copy_threads(), copy);
  job.post(8);
  EXPECT_THROW(job.help(), int);
  thrown = true;
}

TEST(CopyThreads, TakeNoSignalOfTheProgram) {
  static std::atomic<pthread_t> handled{};
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { handled = ::pthread_self(); };
  ::sigaction(SIGUSR1, &action, &before);
  run_job(copy_threads());
  for (int i = 0; i < 20; ++i) {
    handled = pthread_t{};
    ::kill(::getpid(), SIGUSR1);
    ASSERT_TRUE(test::eventually([] { return handled != pthread_t{}; }));
    ASSERT_EQ(handled, ::pthread_self());
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(CopyThreads, AForkedChildHasItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a child whose thread has the stack of one of its parent's";
#endif
  run_job(copy_threads());
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) run_job(copy_threads());
  });
  for (int i = 0; i < 5; ++i) {
    test::in_child([] {
      copy_threads().abandon_after_fork();
      std::atomic<std::size_t> copied{0};
      const auto copy = [&](std::size_t, Copier) { return ++copied > 0; };
      CopyThreads::Job job(copy_threads(), copy);
      job.post(10);
      EXPECT_TRUE(test::eventually([&] { return copied == 10; }));
    });
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace pinion::cuda
