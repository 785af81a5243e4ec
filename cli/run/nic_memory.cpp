#include "cli/run/nic_memory.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/process_stat.h"

namespace pinion::cli {

namespace {

constexpr auto kEvery = std::chrono::milliseconds(20);

std::uint64_t ticks_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto hertz = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * hertz +
         static_cast<std::uint64_t>(now.tv_nsec) * hertz / 1'000'000'000;
}

/// Calls `f(type, payload, bytes)` for each attribute.
template <class F>
void for_each_attribute(const char* at, std::size_t left, F&& f) {
  nlattr attribute;
  while (left >= sizeof attribute) {
    std::memcpy(&attribute, at, sizeof attribute);
    if (attribute.nla_len < NLA_HDRLEN || attribute.nla_len > left) return;
    f(attribute.nla_type & NLA_TYPE_MASK, at + NLA_HDRLEN,
      static_cast<std::size_t>(attribute.nla_len) - NLA_HDRLEN);
    const std::size_t step = std::min<std::size_t>(left, NLA_ALIGN(attribute.nla_len));
    at += step;
    left -= step;
  }
}

template <class T>
T value_of(const char* payload, std::size_t bytes) {
  T value{};
  std::memcpy(&value, payload, std::min(bytes, sizeof value));
  return value;
}

}  // namespace

NicRegionList::NicRegionList() : began_(ticks_since_boot()) {
  socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (socket_ < 0) return;
  const timeval patience{5, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  dump(RDMA_NLDEV_CMD_GET, std::nullopt, [this](const char* payload, std::size_t bytes) {
    for_each_attribute(payload, bytes, [this](int type, const char* value, std::size_t length) {
      if (type == RDMA_NLDEV_ATTR_DEV_INDEX) devices_.push_back(value_of<std::uint32_t>(value, length));
    });
  });
}

NicRegionList::~NicRegionList() {
  if (socket_ >= 0) ::close(socket_);
}

bool NicRegionList::counts(std::uint32_t process) {
  for (const Owner& owner : owners_)
    if (owner.process == process) return owner.counts;
  const ProcessStat stat = process_stat(static_cast<int>(process));
  owners_.push_back({process, stat.read && stat.started >= began_});
  return owners_.back().counts;
}

template <class F>
bool NicRegionList::dump(int command, std::optional<std::uint32_t> device, F&& entry) {
  struct {
    nlmsghdr header{};
    nlattr attribute{};
    std::uint32_t device = 0;
  } request;
  request.header.nlmsg_len = device ? sizeof request : sizeof request.header;
  request.header.nlmsg_type = static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.attribute = {NLA_HDRLEN + sizeof request.device, RDMA_NLDEV_ATTR_DEV_INDEX};
  request.device = device.value_or(0);
  if (::send(socket_, &request, request.header.nlmsg_len, 0) < 0) return false;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  for (;;) {
    const ssize_t received = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (received <= 0) return false;
    auto left = static_cast<std::size_t>(received);
    for (const char* at = buffer.data(); left >= sizeof(nlmsghdr);) {
      nlmsghdr message;
      std::memcpy(&message, at, sizeof message);
      if (message.nlmsg_len < NLMSG_HDRLEN || message.nlmsg_len > left) return false;
      if (message.nlmsg_type == NLMSG_DONE) return true;
      if (message.nlmsg_type == NLMSG_ERROR) return false;
      entry(at + NLMSG_HDRLEN, message.nlmsg_len - NLMSG_HDRLEN);
      const std::size_t step = std::min<std::size_t>(left, NLMSG_ALIGN(message.nlmsg_len));
      at += step;
      left -= step;
    }
  }
}

std::optional<NicRegions> NicRegionList::read() {
  if (devices_.empty()) return std::nullopt;
  NicRegions sum;
  const auto add = [&](const char* payload, std::size_t bytes) {
    std::uint64_t length = 0;
    std::uint32_t process = 0;
    for_each_attribute(payload, bytes, [&](int type, const char* value, std::size_t size) {
      if (type == RDMA_NLDEV_ATTR_RES_MRLEN) length = value_of<std::uint64_t>(value, size);
      if (type == RDMA_NLDEV_ATTR_RES_PID) process = value_of<std::uint32_t>(value, size);
    });
    if (process == 0 || !counts(process)) return;  // 0: the kernel's own
    sum.bytes += length;
    ++sum.regions;
  };
  const auto add_table = [&](const char* payload, std::size_t bytes) {
    for_each_attribute(payload, bytes, [&](int type, const char* table, std::size_t size) {
      if (type != RDMA_NLDEV_ATTR_RES_MR) return;
      for_each_attribute(table, size,
                         [&](int, const char* region, std::size_t length) { add(region, length); });
    });
  };
  for (const std::uint32_t device : devices_)
    if (!dump(RDMA_NLDEV_CMD_RES_MR_GET, device, add_table)) return std::nullopt;
  return sum;
}

NicMemory::NicMemory() {
  // Signals are for the thread that waits for the command.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void NicMemory::watch() {
  const MutexLock lock(mutex_);
  Time before = monotonic_now();
  do {
    const auto now_registered = list_.read();
    if (!now_registered) {
      known_ = false;
      return;
    }
    figures_.peak_bytes = std::max(figures_.peak_bytes, now_registered->bytes);
    figures_.peak_regions = std::max(figures_.peak_regions, now_registered->regions);
    const Time now = monotonic_now();
    const auto passed = static_cast<double>(now - before);
    passed_ += now - before;
    before = now;
    figures_.mean_bytes += passed * static_cast<double>(now_registered->bytes);
    figures_.mean_regions += passed * static_cast<double>(now_registered->regions);
    const auto next = std::chrono::steady_clock::now() + kEvery;
    while (!ending_ && changed_.wait_until(mutex_, next) == std::cv_status::no_timeout) {
    }
  } while (!ending_);
}

void NicMemory::end() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::optional<NicMemory::Figures> NicMemory::figures() {
  end();
  if (!known_) return std::nullopt;
  Figures f = figures_;
  const auto over = static_cast<double>(std::max<Duration>(passed_, 1));
  f.mean_bytes /= over;
  f.mean_regions /= over;
  return f;
}

}  // namespace pinion::cli
