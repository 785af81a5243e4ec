#include "bench/wire.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bench/api.h"
#include "cli/command.h"

namespace pinion::cli {

using transfer::LocalMemory;
using transfer::MessageHandler;
using transfer::Operation;
using transfer::Peer;
using transfer::RemoteMemory;

namespace {

constexpr std::size_t kMostPayload = 256;

struct WireMessage {
  std::uint32_t kind;
  unsigned char payload[kMostPayload];
};
constexpr std::size_t kHeader = offsetof(WireMessage, payload);

void sleep_until(Time time) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(time / kSecond);
  until.tv_nsec = static_cast<long>(time % kSecond);
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace

double parse_wire(const std::string& text) {
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  const double scale = std::strcmp(unit, "GB/s") == 0 ? 1e9 : std::strcmp(unit, "MB/s") == 0 ? 1e6 : 0;
  const double bytes = number * scale;
  if (std::isfinite(bytes) && bytes >= 1e6 && bytes <= 1e12) return bytes;
  throw UsageError(fmt::format(
      "--wire: '{}' is no bandwidth; expected one from 1MB/s to 1000GB/s, such as 1.5GB/s", text));
}

std::string wire_name(double bytes_per_second) {
  return fmt::format("emulated wire of {:g} MB/s", bytes_per_second / 1e6);
}

EmulatedWire::EmulatedWire(Peer self, int socket, double bytes_per_second)
    : self_(self),
      socket_(socket),
      ended_event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      bytes_per_second_(bytes_per_second),
      name_(wire_name(bytes_per_second)) {
  capabilities_.provider = name_.c_str();
  capabilities_.max_message = kMostPayload;
  capabilities_.max_transfer = std::size_t{1} << 30;
  capabilities_.automatic_progress = true;
  must(pinion_domain_open("emulated", "connectx", &domain_));
  // Under Yama only ancestors may read a process's memory.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  thread_ = std::thread([this] { run(); });
}

EmulatedWire::~EmulatedWire() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  posted_.notify_one();
  thread_.join();
  (void)pinion_domain_close(domain_);
  ::close(ended_event_);
  ::close(socket_);
}

void EmulatedWire::connect() {
  const int own = ::getpid();
  pollfd readable{socket_, POLLIN, 0};
  if (::send(socket_, &own, sizeof own, MSG_NOSIGNAL) != sizeof own || ::poll(&readable, 1, -1) != 1 ||
      ::recv(socket_, &other_process_, sizeof other_process_, 0) != sizeof other_process_)
    throw Failure("the other process ended");
}

Error EmulatedWire::put_list(Peer, std::span<const LocalMemory> from, RemoteMemory target,
                             Operation& operation) {
  post({true, from[0], target, &operation, monotonic_now()});  // max_elements is 1
  return {};
}

Error EmulatedWire::get_list(Peer, std::span<const LocalMemory> target, RemoteMemory source,
                             Operation& operation) {
  post({false, target[0], source, &operation, monotonic_now()});
  return {};
}

void EmulatedWire::post(Transfer transfer) {
  {
    const MutexLock lock(mutex_);
    transfers_.push_back(transfer);
  }
  posted_.notify_one();
}

Error EmulatedWire::send(Peer, unsigned kind, const void* payload, std::size_t bytes, Operation* operation) {
  WireMessage message{};
  if (bytes > sizeof message.payload) return Error::make(EMSGSIZE, "a message of %zu bytes", bytes);
  message.kind = kind;
  if (bytes > 0) std::memcpy(message.payload, payload, bytes);
  if (::send(socket_, &message, kHeader + bytes, MSG_NOSIGNAL) < 0)
    return errno == EAGAIN ? Error::make(EAGAIN, "the socket is full")
                           : Error::make(ECONNRESET, "the other process ended");
  if (operation != nullptr) end({operation, {}});
  return {};
}

unsigned EmulatedWire::progress() {
  std::uint64_t count = 0;
  (void)!::read(ended_event_, &count, sizeof count);
  std::vector<Ended> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (const Ended& one : ended) one.operation->done(one.error);
  auto happened = static_cast<unsigned>(ended.size());
  WireMessage message;
  while (!gone_) {
    const ssize_t bytes = ::recv(socket_, &message, sizeof message, 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) break;
    ++happened;
    if (bytes > static_cast<ssize_t>(kHeader) && message.kind < kKinds &&
        handlers_[message.kind] != nullptr) {
      handlers_[message.kind]->message(1 - self_, message.payload, static_cast<std::size_t>(bytes) - kHeader);
    } else {
      gone_ = true;
      for (MessageHandler* const handler : handlers_)
        if (handler != nullptr) handler->gone(1 - self_);
    }
  }
  return happened;
}

void EmulatedWire::wait(Duration at_most) {
  pollfd either[] = {{ended_event_, POLLIN, 0}, {gone_ ? -1 : socket_, POLLIN, 0}};
  const timespec timeout{static_cast<time_t>(at_most / kSecond), static_cast<long>(at_most % kSecond)};
  (void)::ppoll(either, std::size(either), &timeout, nullptr);
}

// ---- the wire's thread ----

void EmulatedWire::end(Ended ended) {
  {
    const MutexLock lock(mutex_);
    ended_.push_back(std::move(ended));
  }
  const std::uint64_t one = 1;
  (void)!::write(ended_event_, &one, sizeof one);
}

void EmulatedWire::run() {
  ::prctl(PR_SET_TIMERSLACK, 1);
  Time free = 0;  // when the wire has carried all before
  MutexLock lock(mutex_);
  while (true) {
    while (!stopped_ && transfers_.empty()) posted_.wait(mutex_);
    if (stopped_) return;
    const Transfer transfer = transfers_.front();
    transfers_.pop_front();
    lock.unlock();
    const Error error = move(transfer);
    free = std::max(free, transfer.posted) +
           static_cast<Duration>(1e9 * static_cast<double>(transfer.local.bytes) / bytes_per_second_);
    sleep_until(free);
    end({transfer.operation, error});
    lock.relock();
  }
}

Error EmulatedWire::move(const Transfer& transfer) const {
  for (std::size_t moved = 0; moved < transfer.local.bytes;) {
    const std::size_t left = transfer.local.bytes - moved;
    const iovec local{static_cast<char*>(transfer.local.address) + moved, left};
    const iovec remote{reinterpret_cast<void*>(transfer.remote.address + moved), left};
    const ssize_t now = (transfer.writes ? ::process_vm_writev : ::process_vm_readv)(other_process_, &local,
                                                                                     1, &remote, 1, 0);
    if (now <= 0)
      return Error::make(EIO, "%s: %s", transfer.writes ? "process_vm_writev" : "process_vm_readv",
                         std::strerror(errno));
    moved += static_cast<std::size_t>(now);
  }
  return {};
}

}  // namespace pinion::cli
