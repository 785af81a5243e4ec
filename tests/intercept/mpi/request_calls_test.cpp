// The calls on requests by several threads (MPI_THREAD_MULTIPLE), over an MPI made up here. It gives a handle
// to the next operation, of any thread, before the call that completed the one before returns.
#include <mutex>
#include <random>
#include <thread>

#include "intercept/mpi/calls_requests.h"
#include "leases.h"

namespace pinion::mpi {

void* g_next[8];  // of the test, instead of the front's

namespace PINION_MPI_ABI {

Library g_library;

namespace {

constexpr Datatype kByte = 0x4c00010d;
constexpr Request kNull = Predefined::kRequestNull;

/// Requests that complete when they are waited for.
class MadeUpMpi {
 public:
  Request begin() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return made_++;
    const Request request = free_.back();
    free_.pop_back();
    return request;
  }
  void end(Request& request) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::exchange(request, kNull));
  }
  Request made() const { return made_; }

 private:
  std::mutex mutex_;
  std::vector<Request> free_;
  Request made_ = 1;
};
MadeUpMpi g_mpi;

/// The next messages of this thread.
struct Coming {
  std::uint32_t bytes = 0;
  bool cancelled = false, at_once = true;
  std::vector<Request> persistent;  ///< their handles stay
};
thread_local Coming t_coming;

void finish(Request& request, Status* status) {
  if (status != kStatusIgnore) *status = {t_coming.bytes, t_coming.cancelled ? 1u : 0u, 0, 0, 0};
  const auto& persistent = t_coming.persistent;
  if (request != kNull && std::find(persistent.begin(), persistent.end(), request) == persistent.end())
    g_mpi.end(request);
}
int next_wait(Request* request, Status* status) {
  finish(*request, status);
  return kSuccess;
}
int next_test(Request* request, int* flag, Status* status) {
  *flag = t_coming.at_once;
  if (*flag) finish(*request, status);
  return kSuccess;
}
int next_waitall(int n, Request* requests, Status* statuses) {
  for (int i = 0; i < n; ++i) finish(requests[i], statuses == kStatusIgnore ? kStatusIgnore : &statuses[i]);
  return kSuccess;
}
int next_waitany(int n, Request* requests, int* index, Status* status) {
  *index =
      static_cast<int>(std::find_if(requests, requests + n, [](Request r) { return r != kNull; }) - requests);
  if (*index == n)
    *index = kUndefined;
  else
    finish(requests[*index], status);
  return kSuccess;
}
int next_start(Request*) { return kSuccess; }
int next_request_free(Request* request) {
  g_mpi.end(*request);
  return kSuccess;
}

enum Entry { kWait, kTest, kWaitall, kWaitany, kStart, kRequestFree };

// These wrappers are as generate.py makes them.
void begin(CallKind kind, char* buffer, int bytes, Request& request) {
  Buffers use(EntryFrame::here(), kind);
  use.among(Predefined::kCommWorld);
  kind == CallKind::send_nonblocking ? use.sends(buffer, bytes, kByte, 0)
                                     : use.receives(buffer, bytes, kByte, 0);
  request = g_mpi.begin();
  use.hand_over_to(request);
}
void make_persistent(char* buffer, int bytes, Request& request) {
  Buffers use(EntryFrame::here(), CallKind::receive_persistent);
  Remembered remembered;
  use.note_down(remembered);
  use.among(Predefined::kCommWorld);
  use.receives(buffer, bytes, kByte, 0);
  request = g_mpi.begin();
  Requests::instance().remember(key_of(request), std::move(remembered));
}

class RequestCallsTest : public LeasesTest {
 protected:
  RequestCallsTest() {
    g_library.request_null = kNull;
    g_next[kWait] = reinterpret_cast<void*>(&next_wait);
    g_next[kTest] = reinterpret_cast<void*>(&next_test);
    g_next[kWaitall] = reinterpret_cast<void*>(&next_waitall);
    g_next[kWaitany] = reinterpret_cast<void*>(&next_waitany);
    g_next[kStart] = reinterpret_cast<void*>(&next_start);
    g_next[kRequestFree] = reinterpret_cast<void*>(&next_request_free);
    g_type_sizes.expect(kByte);
    g_type_sizes.learn(kByte, {1, 1});
    g_threshold = g_least_bytes = leases_->threshold();
  }
  ~RequestCallsTest() override {
    g_threshold = g_least_bytes = kNothing;
    Requests::instance().release_all(*thread_, *leases_);
    FreedRequests::instance().finish(*thread_, *leases_);
  }

  /// One round of a thread's calls in one of the ways.
  void talk(unsigned way, char* out, char* in, int bytes) {
    Request requests[2] = {kNull, kNull};
    if (way == 4) return talk_persistently(in, bytes);
    begin(CallKind::receive_nonblocking, in, bytes, requests[0]);
    begin(CallKind::send_nonblocking, out, bytes, requests[1]);
    int index = 0, flag = 0;
    switch (way) {
      case 0:
        Wait<kWait>(&requests[0], kStatusIgnore);
        Wait<kWait>(&requests[1], kStatusIgnore);
        break;
      case 1:
        Waitall<kWaitall>(2, requests, kStatusIgnore);
        break;
      case 2:
        for (int i = 0; i < 3; ++i) Waitany<kWaitany>(2, requests, &index, kStatusIgnore);
        EXPECT_EQ(index, kUndefined);
        break;
      default:
        for (t_coming.at_once = false; !flag; t_coming.at_once = true)
          PINION_MPI_ABI::Test<kTest>(&requests[0], &flag, kStatusIgnore);
        Request_free<kRequestFree>(&requests[1]);
    }
    EXPECT_EQ(requests[0], kNull);
    EXPECT_EQ(requests[1], kNull);
  }
  void talk_persistently(char* in, int bytes) {
    Request request = kNull;
    make_persistent(in, bytes, request);
    t_coming.persistent.push_back(request);
    for (int i = 0; i < 3; ++i) {
      Start<kStart>(&request);
      Wait<kWait>(&request, kStatusIgnore);
    }
    t_coming.persistent.pop_back();
    Request_free<kRequestFree>(&request);
  }
  char* at(std::size_t number) const { return reinterpret_cast<char*>(page(number)); }
};

// Some MPIs return success from a call with a null handle, once the program's error handler has returned.
TEST_F(RequestCallsTest, NullHandlesAreNeitherAskedAboutNorLearnt) {
  g_library.comm_world = Predefined::kCommWorld;
  g_library.comm_null = Predefined::kCommNull;
  HandleQuestions questions;
  EXPECT_FALSE(OtherSide::may_ask(questions, Predefined::kCommNull));
  EXPECT_FALSE(questions.refused());  // nothing to be asked after the call either
  questions.called();
  EXPECT_FALSE(OtherSide::may_ask(questions, Predefined::kCommNull));
  EXPECT_FALSE(KnownHandles::communicators().contains(Predefined::kCommNull));
}

TEST_F(RequestCallsTest, AllLeasesOfThreadsAreReturned) {
  constexpr unsigned kThreads = 4;
  constexpr int kRounds = 1500;
  const auto pages = static_cast<int>(4 * page_size());
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kThreads; ++number)
    threads.emplace_back([&, number] {
      std::minstd_rand random(number + 1);
      for (int round = 0; round < kRounds; ++round) {
        // Own memory, or memory that all threads lease.
        const std::size_t from = random() % 2 ? 8 * number : 40;
        t_coming.bytes = random() % 3 ? static_cast<std::uint32_t>(pages) : random() % 8192;
        t_coming.cancelled = random() % 16 == 0;
        talk(random() % 5, at(from), at(from + 4), pages);
      }
    });
  for (std::thread& thread : threads) thread.join();
  FreedRequests::instance().finish(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
  for (Request request = 1; request < g_mpi.made(); ++request)
    EXPECT_FALSE(Requests::may_know(key_of(request))) << request;
  EXPECT_GT(acquires(), std::uint64_t{kThreads} * kRounds);
}

}  // namespace
}  // namespace PINION_MPI_ABI
}  // namespace pinion::mpi
