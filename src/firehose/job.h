// A process's part in a job of one-sided puts and gets: joining and leaving, messages of the program and of
// peers, barriers, and the threads that keep them going. Puts and gets themselves are Calls (calls.h).
//
// Owns the endpoint and all parts of the job (ways.h). Threads: the endpoint's own, or one here where the
// endpoint has none, which progresses while no call of the program does; and the agent, for slow work
// (registering for peers, revocation) and for messages that the endpoint's full queue kept back.
//
// Any thread between open() and close(). Inside a handler of the program's nothing waits. Each part states
// its own lock; the job itself has none.
//
// Out of memory: where a message of the job's own cannot be kept, the connection with its peer is closed.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "firehose/calls.h"
#include "firehose/gathering.h"
#include "firehose/outbox.h"
#include "firehose/ways.h"
#include "transfer/bootstrap/bootstrap.h"

namespace pinion::firehose {

class Job {
 public:
  struct Result {
    Error error;
    std::unique_ptr<Job> job;
  };
  /// Pinion runs. Collective.
  static Result open(const pinion_firehose_options& options);
  ~Job();
  Error close();

  /// The job as the C API names it.
  pinion_firehose* handle() { return reinterpret_cast<pinion_firehose*>(this); }
  static Job* of(pinion_firehose* handle) { return reinterpret_cast<Job*>(handle); }
  static const Job* of(const pinion_firehose* handle) { return reinterpret_cast<const Job*>(handle); }

  Peer self() const { return ways_.endpoint->self(); }
  Peer peers() const { return ways_.endpoint->peers(); }
  /// False in a forked child: the job is its parent's.
  bool is_here() const { return forks_ == forks_so_far.load(std::memory_order_relaxed); }

  Calls& calls() { return *ways_.calls; }

  // ---- messages and together ----

  std::size_t max_message() const;
  /// EAGAIN never: the message waits, or the caller does.
  Error send(Peer to, unsigned handler, const void* payload, std::size_t bytes);
  /// False: processes are gone that did not take part.
  bool gather(const void* own, std::size_t bytes, char* all);

  /// Progresses until `holds()`.
  template <class Holds>
  void until(Holds&& holds) {
    while (!holds())
      if (progress() == 0 && !holds()) ways_.endpoint->wait(kLook);
  }
  unsigned progress();
  static bool in_handler();

  void statistics(struct pinion_firehose_statistics& out) const;

 private:
  static std::atomic<unsigned> forks_so_far;
  static constexpr Duration kLook = 5 * kMillisecond;
  static constexpr const char* kDefaultStrategy = "firehose";

  /// Receives one kind of messages.
  class Slot final : public transfer::MessageHandler {
   public:
    Slot(Job& job, MessageKind kind) : job_(job), kind_(kind) {}
    void message(Peer from, const void* payload, std::size_t bytes) override;
    void gone(Peer peer) override;

   private:
    Job& job_;
    const MessageKind kind_;
  };

  explicit Job(const pinion_firehose_options& options);
  static unsigned watch_forks();
  Error join();
  Error find_membership(transfer::Membership& membership) const;
  Error open_endpoint(const transfer::Membership& membership);
  Error agree_on_buckets();
  void make_parts(const std::string& strategy);
  void user_message(Peer from, const void* payload, std::size_t bytes);
  void strategy_message(Peer from, const void* payload, std::size_t bytes);
  void cut_off(Peer peer);
  void lose(Peer peer);
  Time work();
  void run_agent();
  void run_progress();
  void start_threads();
  void stop_threads();

  const unsigned forks_;  ///< forks of this process and those before, when it was opened
  std::vector<Slot> slots_;
  Ways ways_;
  std::unique_ptr<Gathering> gathering_;
  std::atomic<std::uint64_t> messages_{0};

  bool closed_ = false;  ///< the closing thread's
  std::thread agent_, progress_;
  std::atomic<bool> stop_{false};
};

}  // namespace pinion::firehose
