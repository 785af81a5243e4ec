// Tests what becomes of objects that a call has open: its frames return, are left by exceptions and jumps, or
// are in a forked child.
#include "intercept/cuda/kept.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "intercept/cuda/outermost_call.h"

namespace pinion::cuda {

namespace {

std::string g_ended;

class Named {
 public:
  explicit Named(char name) : name_(name) {}
  ~Named() { g_ended += name_; }

 private:
  const char name_;
};

jmp_buf g_back;

/// A call of the program's: opens two objects, and is left by `leave`.
template <class Leave>
[[gnu::noinline]] void call(Leave leave) {
  OutermostCall outermost;
  ASSERT_TRUE(outermost.open());
  const Kept<Named> first('a');
  const Kept<Named> second('b');
  leave();
}

/// Overwrites the frames that a jump has left.
[[gnu::noinline]] void use_stack() {
  volatile char room[16384];
  for (volatile char& byte : room) byte = 0x5a;
}

[[gnu::noinline]] void jump_out() {
  if (setjmp(g_back) == 0) call([] { longjmp(g_back, 1); });
}

class KeptObjects : public testing::Test {
 protected:
  void SetUp() override { g_ended.clear(); }
};

}  // namespace

TEST_F(KeptObjects, EndInTheReverseOrder) {
  call([] {});
  EXPECT_EQ(g_ended, "ba");
}

TEST_F(KeptObjects, OfFramesThatAnExceptionLeavesEndWithThem) {
  EXPECT_THROW(call([] { throw 1; }), int);
  EXPECT_EQ(g_ended, "ba");
}

TEST_F(KeptObjects, OfAJumpEndAtTheNextCall) {
  jump_out();
  EXPECT_EQ(g_ended, "");
  use_stack();
  call([] { EXPECT_EQ(g_ended, "ba"); });
  EXPECT_EQ(g_ended, "baba");
}

TEST_F(KeptObjects, OfAJumpEndWithTheThread) {
  std::thread(jump_out).join();
  EXPECT_EQ(g_ended, "ba");
}

/// Keeps another one for the time of its constructor.
class Asks {
 public:
  explicit Asks(bool jumps) {
    const Kept<Named> inner('i');
    if (jumps) longjmp(g_back, 1);
  }
  ~Asks() { g_ended += name_; }

 private:
  const char name_ = 'o';
};

TEST_F(KeptObjects, LieApartFromThoseOfTheirConstructors) {
  call([] { const Kept<Asks> outer(false); });
  EXPECT_EQ(g_ended, "ioba");
}

TEST_F(KeptObjects, OfAConstructorThatAJumpLeavesEndAtTheNextCall) {
  if (setjmp(g_back) == 0) call([] { const Kept<Asks> outer(true); });
  use_stack();
  call([] { EXPECT_EQ(g_ended, "iba"); });
}

TEST_F(KeptObjects, AfterAnExceptionOfTheirConstructorsWereNeverThere) {
  struct Refuses {
    Refuses() { throw 1; }
    ~Refuses() { g_ended += 'x'; }
  };
  call([] { EXPECT_THROW(Kept<Refuses>(), int); });
  EXPECT_EQ(g_ended, "ba");
}

TEST_F(KeptObjects, MayBeMoreThanThereIsRoomFor) {
  struct Large {
    std::array<char, OpenCall::kMostOfOne - 16> bytes;
    Named name{'l'};
  };
  call([] {
    const Kept<Large> one, two, three, four, five;
    const Kept<Named> small('s');
  });
  EXPECT_EQ(g_ended, "slllllba");
}

TEST_F(KeptObjects, CallsWithinACallPassBy) {
  call([] {
    OutermostCall inner;
    EXPECT_FALSE(inner.open());
  });
  OutermostCall next;
  EXPECT_TRUE(next.open());
}

TEST_F(KeptObjects, AreForgottenInAChildThatIsForkedInsideOfTheCall) {
  struct Forks {
    explicit Forks(pid_t& child) { child = ::fork(); }
    ~Forks() { g_ended += name; }
    char name = 'f';
  };
  pid_t child = -1;
  call([&] {
    const Kept<Forks> forks(child);
    const Kept<Named> later('l');
  });
  if (child == 0) {
    const bool forgotten = g_ended == "lf";
    call([] {});
    ::_exit(forgotten && g_ended == "lfba" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(g_ended, "lfba");
}

}  // namespace pinion::cuda
