/*
 * Pinion for C++17: sessions, domains, leases and preparations as values that end with their scope. Header
 * only, over <pinion/pinion.h>, whose rules on threads, hooks and forks hold; link libpinion.
 *
 *   pinion::session session;                            // throws pinion::error
 *   pinion::domain domain;                              // throws pinion::error
 *   const auto lease = domain.acquire(buffer, bytes, PINION_ACCESS_WRITE);
 *   if (const auto keys = lease.keys())
 *     receive(buffer, bytes, keys->lkey);               // registered until the end of the scope
 *   else
 *     receive_by_copy(buffer, bytes);                   // refused (lease.error()), or retention observe
 *
 *   - Constructors that begin something throw pinion::error, with the errno value and the text of
 *     pinion_last_error(). Nothing on the path of a transfer throws: a lease that was refused is false.
 *   - All types can be moved and not copied. One that was moved from is empty; its end does nothing.
 *   - Leases end before their domain, domains before their session: declare them in that order.
 */
#ifndef PINION_PINION_HPP
#define PINION_PINION_HPP

#include <pinion/pinion.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

namespace pinion {

/* A call that failed: code() is its errno value, what() begins with pinion_last_error(). */
class error : public std::system_error {
 public:
  explicit error(int code) : std::system_error(code, std::generic_category(), pinion_last_error()) {}
};

namespace detail {

inline void check(int code) {
  if (code != 0) throw error(code);
}

/* A handle of the C API that ends with its owner. */
template <class Handle, int (*End)(Handle*)>
class owned {
 public:
  owned() = default;
  explicit owned(Handle* handle) noexcept : handle_(handle) {}
  owned(owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~owned() {
    if (handle_) End(handle_);
  }
  Handle* get() const noexcept { return handle_; }
  Handle* let_go() noexcept { return std::exchange(handle_, nullptr); }

 private:
  Handle* handle_ = nullptr;
};

}  // namespace detail

/* The use of Pinion in this process, from pinion_start() to pinion_stop(). */
class session {
 public:
  /* `options`: "name=value,..."; the environment overrides them. */
  explicit session(const char* options = nullptr) { detail::check(pinion_start(options)); }
  session(session&& other) noexcept : started_(std::exchange(other.started_, false)) {}
  session& operator=(session&& other) noexcept {
    std::swap(started_, other.started_);
    return *this;
  }
  ~session() {
    if (started_) pinion_stop();
  }

 private:
  bool started_ = true;
};

/* The right to use registered memory, until its end or release(). */
class lease {
 public:
  lease() = default;
  lease(lease&& other) noexcept
      : lease_(std::exchange(other.lease_, PINION_LEASE_INIT)),
        error_(std::exchange(other.error_, ENODATA)) {}
  lease& operator=(lease&& other) noexcept {
    std::swap(lease_, other.lease_);
    std::swap(error_, other.error_);
    return *this;
  }
  ~lease() { release(); }

  /* Whether the memory is leased. */
  explicit operator bool() const noexcept { return error_ == 0; }
  /* 0, or why there is no lease: EAGAIN, ENOMEM, ENODATA (none was asked for, or it was released), ... */
  int error() const noexcept { return error_; }

  /* For the device; nothing where retention `observe` registers nothing, or without a lease. */
  std::optional<pinion_keys> keys() const noexcept {
    pinion_keys keys{};
    keys.size = sizeof keys;
    if (error_ != 0 || pinion_lease_keys(&lease_, &keys) != 0) return std::nullopt;
    return keys;
  }

  void release() noexcept {
    if (error_ == 0) pinion_release(&lease_);
    error_ = ENODATA;
  }

 private:
  friend class domain;
  /* `acquire`: pinion_acquire or pinion_try_acquire. */
  template <class Acquire>
  lease(Acquire acquire, pinion_domain* domain, const void* address, std::size_t bytes,
        unsigned access) noexcept
      : error_(acquire(domain, address, bytes, access, &lease_)) {}

  pinion_lease lease_ = PINION_LEASE_INIT;
  int error_ = ENODATA;
};

/* Memory that is registered ahead of its first transfer; stays registered until the end of this value. */
class preparation {
 public:
  pinion_preparation_state state() const noexcept {
    pinion_preparation_state state{};
    state.size = sizeof state;
    pinion_preparation_poll(handle_.get(), &state);
    return state;
  }
  /* Waits for the end: 0 when all is ready, ETIMEDOUT, or why it was rolled back. */
  int wait() noexcept { return pinion_preparation_wait(handle_.get(), UINT64_MAX); }
  int wait(std::chrono::nanoseconds most) noexcept {
    return pinion_preparation_wait(handle_.get(),
                                   most.count() < 0 ? 0 : static_cast<std::uint64_t>(most.count()));
  }
  void cancel() noexcept { pinion_preparation_cancel(handle_.get()); }

 private:
  friend class domain;
  explicit preparation(pinion_preparation* handle) noexcept : handle_(handle) {}
  detail::owned<pinion_preparation, pinion_preparation_end> handle_;
};

/* A device and its protection domain, with a registration cache of its own. */
class domain {
 public:
  /* `device` and `nic`: names as of the options of these names; nullptr: the options' own. */
  explicit domain(const char* device = nullptr, const char* nic = nullptr)
      : domain([&](pinion_domain** made) { return pinion_domain_open(device, nic, made); }) {}
  /* On a device of the caller's own, which outlives this domain. */
  explicit domain(ibv_pd* pd)
      : domain([&](pinion_domain** made) { return pinion_domain_open_pd(pd, made); }) {}
  domain(fid_domain* fabric, const fi_info* info, fid_ep* endpoint = nullptr)
      : domain(
            [&](pinion_domain** made) { return pinion_domain_open_fabric(fabric, info, endpoint, made); }) {}
  explicit domain(const pinion_device_operations& operations)
      : domain([&](pinion_domain** made) { return pinion_domain_open_operations(&operations, made); }) {}

  /* Registers where needed, and waits for that. The lease is false where it was refused. */
  lease acquire(const void* address, std::size_t bytes, unsigned access) noexcept {
    return {pinion_acquire, handle_.get(), address, bytes, access};
  }
  /* A lease if the memory is registered already, else false (EAGAIN). Never registers, never waits. */
  lease try_acquire(const void* address, std::size_t bytes, unsigned access) noexcept {
    return {pinion_try_acquire, handle_.get(), address, bytes, access};
  }

  preparation prepare(std::initializer_list<pinion_range> ranges, unsigned access, bool hugepages = false) {
    pinion_prepare_options options{};
    options.size = sizeof options;
    options.access = access;
    options.hugepages = hugepages;
    pinion_preparation* made = nullptr;
    detail::check(pinion_prepare(handle_.get(), ranges.begin(), ranges.size(), &options, &made));
    return preparation(made);
  }

  struct pinion_statistics statistics() const {
    struct pinion_statistics statistics {};
    statistics.size = sizeof statistics;
    detail::check(pinion_statistics(handle_.get(), &statistics));
    return statistics;
  }

  /* Closes it now; EBUSY, and it stays open, while leases are out. Its end leaves such a domain to the
   * session's. */
  int close() noexcept {
    const int code = pinion_domain_close(handle_.get());
    if (code == 0) handle_.let_go();
    return code;
  }
  /* For the C API. */
  pinion_domain* get() const noexcept { return handle_.get(); }

 private:
  template <class Open, class = decltype(std::declval<Open>()(static_cast<pinion_domain**>(nullptr)))>
  explicit domain(Open open) {
    pinion_domain* made = nullptr;
    detail::check(open(&made));
    handle_ = detail::owned<pinion_domain, pinion_domain_close>(made);
  }
  detail::owned<pinion_domain, pinion_domain_close> handle_;
};

/* A change of memory that libc does not see, from before it until the end of the scope. Safe in hooks. */
class memory_change {
 public:
  memory_change(const void* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {
    pinion_memory_begin(address_, bytes_);
  }
  memory_change(const memory_change&) = delete;
  memory_change& operator=(const memory_change&) = delete;
  ~memory_change() { pinion_memory_end(address_, bytes_); }

 private:
  const void* address_;
  std::size_t bytes_;
};

}  // namespace pinion

#endif
