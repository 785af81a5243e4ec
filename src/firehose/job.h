// A process's part in a job of one-sided puts and gets: joining, calls of the program, messages of peers,
// barriers, and the threads that keep them going.
//
//   C API --> Job::start() --> parts --> Strategy --> by_provider(): Endpoint::put, get
//                                                 --> by_message():  Courier --> peer's Job::serve()
//
// Owns the endpoint and all parts of the job. Threads: the endpoint's own, or one here where the endpoint has
// none, which progresses while no call of the program does; and the agent, for slow work (registering for
// peers, revocation) and for messages that the endpoint's full queue kept back.
//
// Any thread between open() and close(). Inside a handler of the program's nothing waits. Each part states
// its own lock; the job's are named at their members.
//
// Out of memory: a call that cannot begin throws bad_alloc, without effect. One that has begun ends, by
// ENOMEM where a part of it found no memory. Where a message of the job's own cannot be kept, the connection
// with its peer is closed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/range.h"
#include "firehose/call.h"
#include "firehose/courier.h"
#include "firehose/gathering.h"
#include "firehose/outbox.h"
#include "firehose/packing.h"
#include "firehose/strategy.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::firehose {

class Job final : public Ways {
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

  Peer self() const { return endpoint_->self(); }
  Peer peers() const { return endpoint_->peers(); }
  /// False in a forked child: the job is its parent's.
  bool is_here() const { return forks_ == forks_so_far.load(std::memory_order_relaxed); }

  // ---- calls ----

  /// Adds puts or gets to a call, under way from here on. Throws nothing: the call fails.
  void start(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  void start_atomic(Call& call, std::uint64_t remote, std::size_t bytes, unsigned operation,
                    std::uint64_t operand, std::uint64_t compare, std::uint64_t* old);
  /// The caller has added all; the call ends with its last part.
  void launched(Call& call);
  /// A call was made, and is to be ended.
  void count(Call& call);
  /// A blocking put, from the call to delivery.
  void put_took(const Call& call, Duration time);
  /// The implicit calls of the calling thread.
  const std::shared_ptr<ImplicitCalls>& implicit();
  /// No call of the process is under way.
  bool all_done() const { return live_.load(std::memory_order_acquire) == 0; }

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
      if (progress() == 0 && !holds()) endpoint_->wait(kLook);
  }
  unsigned progress();
  static bool in_handler();

  void statistics(struct pinion_firehose_statistics& out) const;

  // ---- Ways: for the strategy ----

  transfer::Endpoint& endpoint() override { return *endpoint_; }
  const pinion_firehose_options& options() const override { return options_; }
  void by_message(Part& part) override;
  bool ride(Part& part, const void* message, std::size_t bytes) override;
  void by_provider(Part& part) override;
  void fail(Part& part, int error) override;
  void control(Peer to, const void* message, std::size_t bytes) override;
  void ring() override;
  void cut_off(Peer peer) override;
  void serve(Peer from, const void* payload, std::size_t bytes) override;
  Range exposed_part(Range range) const override;

 private:
  friend struct Part;
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
  Error open_endpoint(const transfer::Membership& place);
  Error agree_on_buckets();
  struct Batch;
  Part* make_part(Call& call, PartKind kind);
  bool add(Batch& batch, Call& call, PartKind kind, const pinion_firehose_piece& piece);
  bool travels_together(Call& call, std::span<const pinion_firehose_piece> pieces);
  void count(PartKind kind, std::size_t pieces);
  void start_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  void start_apart(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  std::size_t add_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  int serve_scattered(const DataMessage& message, char* data, DataMessage& answer) const;
  void access_own(Call& call, PartKind kind, const pinion_firehose_piece& piece);
  void part_over(Call& call);
  static void answered(Part& part, int error);
  static void finish(Part& part, int error);
  void provider_done(Part& part, const Error& error);
  bool post(Part& part);
  bool post_waiting();
  void dispatch(Peer from, MessageKind kind, const void* payload, std::size_t bytes);
  void user_message(Peer from, const void* payload, std::size_t bytes);
  void strategy_message(Peer from, const void* payload, std::size_t bytes);
  bool is_exposed(Range range) const;
  void lose(Peer peer);
  void cut_off_lost();
  Time work();
  void run_agent();
  void run_progress();
  void stop_threads();

  pinion_firehose_options options_;
  std::vector<Range> segments_;  ///< exposed; empty: everything
  const unsigned forks_;         ///< of this process and those before, when it was opened
  const std::uint64_t number_;   ///< of this job in the process
  std::vector<Slot> slots_;
  std::unique_ptr<transfer::FabricEndpoint> endpoint_;
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<Courier> courier_;
  std::unique_ptr<Gathering> gathering_;
  std::unique_ptr<Strategy> strategy_;
  std::uint64_t bucket_ = 0;  ///< of the strategy's
  Packing packing_;

  std::atomic<std::uint64_t> live_{0};  ///< calls under way
  std::atomic<std::uint64_t> puts_{0}, gets_{0}, atomics_{0}, messages_{0}, messaged_{0}, riders_{0},
      packed_{0};

  struct Latency {
    std::atomic<std::uint64_t> ns{0}, puts{0};
  };
  Latency hit_latency_, miss_latency_;

  std::mutex waiting_mutex_;  ///< guards the next
  Parts waiting_;             ///< for room in the endpoint's queue
  std::atomic<bool> has_waiting_{false};

  std::unique_ptr<std::atomic<bool>[]> cut_off_;  ///< by peer

  bool closed_ = false;  ///< the closing thread's
  std::thread agent_, progress_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> bell_{0};
};

}  // namespace pinion::firehose
