#include "device/fabric/fabric.h"

#include "base/mutex.h"
#include "base/units.h"
#include "device/fabric/fabric_infos.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/held_signals.h"
#include "device/handle_table.h"
#include "device/kernel/fault_in.h"
#include "device/kernel/hidden_from_children.h"
#include "device/kernel/memlock.h"
#include "device/kernel/pin.h"
#include "device/verbs/own_verbs_call.h"

namespace pinion {

namespace {

std::uint64_t rights(Access access) {
  std::uint64_t flags = FI_SEND | FI_WRITE;  // the source of sends and puts
  if (writes(access)) flags |= FI_RECV | FI_READ;
  if (includes(access, Access::remote_write)) flags |= FI_REMOTE_WRITE;
  if (includes(access, Access::remote_read)) flags |= FI_REMOTE_READ;
  return flags;
}

/// A domain, and an endpoint where registrations need one. It closes all that it opened.
class Opened {
 public:
  Opened() = default;
  ~Opened() {
    if (!owner_) return;
    close(endpoint);
    close(completions_);
    close(addresses_);
    close(domain);
    close(fabric_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  Error open(const FabricLibrary& fabric, const std::string& choice) {
    FabricInfos infos(fabric);
    Error error = infos.ask({FI_MSG | FI_RMA});
    fi_info* const chosen = error ? nullptr : infos.choose(choice, error);
    if (chosen == nullptr) return error;
    describe(*chosen);
    int code = fabric.fabric(chosen->fabric_attr, &fabric_, nullptr);
    if (code == 0) code = fi_domain(fabric_, chosen, &domain, nullptr);
    if (code == 0 && (mode & FI_MR_ENDPOINT) != 0) code = open_endpoint(chosen);
    return code == 0 ? Error{}
                     : fabric_failure(code, "libfabric's provider %s cannot be opened", provider.c_str());
  }

  /// The program's own.
  Error borrow(fid_domain* theirs, const fi_info& info, fid_ep* their_endpoint) {
    owner_ = false;
    domain = theirs;
    endpoint = their_endpoint;
    describe(info);
    if ((mode & FI_MR_ENDPOINT) != 0 && endpoint == nullptr)
      return Error::make(EINVAL, "libfabric's provider %s binds registrations to an endpoint: name one",
                         provider.c_str());
    if (info.domain_attr->threading == FI_THREAD_DOMAIN)
      return Error::make(ENOTSUP,
                         "the domain has FI_THREAD_DOMAIN, so only one thread at a time may use it; Pinion "
                         "registers by several");
    return {};
  }

  fid_domain* domain = nullptr;
  fid_ep* endpoint = nullptr;
  std::string provider, name;  ///< name: the domain's
  int mode = 0;                ///< FI_MR_*
  std::size_t key_bytes = 0;
  std::size_t most_regions = 0;  ///< 0: not stated

 private:
  template <class Fid>
  static void close(Fid* object) {
    if (object != nullptr) fi_close(&object->fid);
  }

  void describe(const fi_info& info) {
    provider = info.fabric_attr->prov_name ? info.fabric_attr->prov_name : "";
    name = info.domain_attr->name ? info.domain_attr->name : "";
    mode = fabric_mr_mode(info);
    key_bytes = info.domain_attr->mr_key_size;
    most_regions = info.domain_attr->mr_cnt;
  }

  int open_endpoint(fi_info* info) {
    fi_av_attr addresses{};
    fi_cq_attr completions{};
    completions.format = FI_CQ_FORMAT_CONTEXT;
    int code = fi_av_open(domain, &addresses, &addresses_, nullptr);
    if (code == 0) code = fi_cq_open(domain, &completions, &completions_, nullptr);
    if (code == 0) code = fi_endpoint(domain, info, &endpoint, nullptr);
    if (code == 0) code = fi_ep_bind(endpoint, &addresses_->fid, 0);
    if (code == 0) code = fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_RECV);
    return code == 0 ? fi_enable(endpoint) : code;
  }

  bool owner_ = true;
  fid_fabric* fabric_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
};

/// Keys that the application chooses. They count down, for programs count their own up, and come back only
/// when all have been used: an old key must not reach other memory.
class Keys {
 public:
  /// All bits set: the key is missing.
  explicit Keys(std::size_t key_bytes)
      : mask_(key_bytes == 0 || key_bytes >= 8 ? ~std::uint64_t{0}
                                               : (std::uint64_t{1} << 8 * key_bytes) - 1) {}
  std::uint64_t next() {
    std::uint64_t key;
    do {
      key = next_.fetch_sub(1, std::memory_order_relaxed) & mask_;
    } while (key == mask_);
    return key;
  }

 private:
  const std::uint64_t mask_;
  std::atomic<std::uint64_t> next_{FI_KEY_NOTAVAIL - 1};
};

/// Keeps a registration out of libfabric's own cache, which would leave it pinned when it is closed.
/// Providers with that cache (verbs, cxi) know the flag, OFI_MR_NOCACHE, which libfabric's headers lack.
constexpr std::uint64_t kPastTheCache = std::uint64_t{1} << 60;
enum class Flag : std::uint8_t { untried, taken, refused };

/// A registration with libfabric and, where the provider pins nothing, the kernel's.
struct FabricRegion {
  fid_mr* region = nullptr;
  RegistrationKey pinned;
  std::unique_ptr<std::uint8_t[]> raw_key;
};

class FabricDevice final : public Device {
 public:
  /// `fabric` is null for a domain of the program's.
  FabricDevice(const FabricLibrary* fabric, std::unique_ptr<Opened> opened)
      : fabric_(fabric),
        provider_(opened->provider),
        domain_(opened->name),
        mode_(opened->mode),
        key_bytes_(opened->key_bytes),
        state_(std::make_unique<State>(1, key_bytes_)) {
    if (!fabric_pins(provider_)) pin_ = make_pin_device();
    capabilities_.remote = true;
    capabilities_.needs_endpoint = has(FI_MR_ENDPOINT);
    if (pin_) capabilities_.caps = pin_->capabilities().caps;
    std::size_t& most = capabilities_.caps.max_regions;
    if (opened->most_regions != 0)
      most = most == 0 ? opened->most_regions : std::min(most, opened->most_regions);
    state_->opened = std::move(opened);
    // Libibverbs in fork-safe mode may lie below a NIC's provider.
    capabilities_.hides_from_children = pin_ == nullptr && marks_registered();
    capabilities_.splits_mappings =
        pin_ ? pin_->capabilities().splits_mappings : capabilities_.hides_from_children;
  }

  ~FabricDevice() override {
    const HeldSignals held;
    while (auto entry = state_->table.take_any()) static_cast<void>(let_go(*entry, Actor::application));
  }

  const char* name() const override { return "fabric"; }

  std::string description() const override {
    std::string text = fabric_ ? "registers with libfabric's provider " + provider_
                               : "registers in the program's domain of libfabric's provider " + provider_;
    if (!domain_.empty()) text += " (" + domain_ + ")";
    return pin_ ? text + ", which pins nothing; " + pin_->description() : text;
  }

  DeviceCapabilities capabilities() const override { return capabilities_; }

  Registration register_range(Range pages, Access access, Actor actor) override {
    if (pages.empty() || pages.to_pages() != pages)
      return {Error::make(EINVAL, "memory %#zx-%#zx is not whole pages", pages.begin, pages.end), {}, {}};
    const OwnVerbsCall own_call;
    Error error;
    Opened* const opened = this->opened(error);
    if (opened == nullptr) return {error, {}, {}};
    FabricRegion entry;
    error = pin(pages, access, actor, entry);
    if (error) return {error, {}, {}};
    Registration made;
    made.granted = access;
    error = add(*opened, pages, access, entry, made.key);
    if (error) {
      // A failed deregistration is tried again at the end.
      if (let_go(entry, actor)) state_->table.add(std::move(entry));
      return {error, {}, {}};
    }
    made.key.handle = state_->table.add(std::move(entry));
    return made;
  }

  Error deregister(const RegistrationKey& key, Actor actor) override {
    const OwnVerbsCall own_call;
    auto entry = state_->table.take(key.handle);
    if (!entry) return {};
    Error error = let_go(*entry, actor);
    if (error) state_->table.restore(key.handle, std::move(*entry));
    return error;
  }

  void abandon_after_fork() override {
    // Leaked on purpose: domain and regions are the parent's.
    State* const parents = state_.release();
    state_ = std::make_unique<State>(parents->table.next_after_fork(), key_bytes_);
    if (pin_) pin_->abandon_after_fork();
  }

 private:
  bool marks_registered() {
    return hides_from_children([this](Range page, FunctionRef<void()> look) {
      const Registration made = FabricDevice::register_range(page, Access::write, Actor::application);
      if (made.error) return;
      look();
      static_cast<void>(FabricDevice::deregister(made.key, Actor::application));
    });
  }

  struct State {
    State(std::uint64_t first_handle, std::size_t key_bytes) : table(first_handle), keys(key_bytes) {}
    Mutex mutex;
    std::unique_ptr<Opened> opened GUARDED_BY(mutex);
    HandleTable<FabricRegion> table;
    Keys keys;
    Mutex registering;  ///< held in calls of a provider that pins nothing
  };

  /// Providers in software enter a region into a table, `net` of libfabric 1.17 by a lock that locks nothing:
  /// it takes microseconds, so they are called by one thread at a time. Those that pin take long, and are
  /// called by several.
  std::unique_lock<Mutex> alone() {
    return pin_ ? std::unique_lock(state_->registering) : std::unique_lock<Mutex>();
  }

  bool has(int mode) const { return (mode_ & mode) != 0; }

  /// In a forked child, which cannot use its parent's, a domain is opened anew.
  Opened* opened(Error& error) {
    const MutexLock lock(state_->mutex);
    if (!state_->opened && fabric_ == nullptr) {
      error = Error::make(ENODEV, "a forked child cannot register in its parent's domain");
      return nullptr;
    }
    if (!state_->opened) {
      auto opened = std::make_unique<Opened>();
      error = opened->open(*fabric_, provider_);
      if (error) return nullptr;
      state_->opened = std::move(opened);
    }
    return state_->opened.get();
  }

  /// Lets the kernel pin where the provider does not; else the pages are only made present (fault_in.h).
  Error pin(Range pages, Access access, Actor actor, FabricRegion& entry) {
    if (!pin_) return fault_in(pages, writes(access));
    const Registration pinned = pin_->register_range(pages, access, actor);
    entry.pinned = pinned.key;
    return pinned.error;
  }

  int enter(const Opened& opened, Range pages, Access access, std::uint64_t flags, FabricRegion& entry) {
    return fi_mr_reg(opened.domain, reinterpret_cast<void*>(pages.begin), pages.bytes(), rights(access), 0,
                     has(FI_MR_PROV_KEY) ? 0 : state_->keys.next(), flags, &entry.region, nullptr);
  }

  /// A provider that has taken the flag once refuses something else: without it, the region would enter the
  /// cache.
  int enter_past_the_cache(const Opened& opened, Range pages, Access access, FabricRegion& entry) {
    const Flag known = pin_ ? Flag::refused : flag_.load(std::memory_order_relaxed);
    int code = enter(opened, pages, access, known == Flag::refused ? 0 : kPastTheCache, entry);
    if (known != Flag::untried) return code;
    const bool refused = code == -FI_EBADFLAGS || code == -FI_EINVAL;
    if (refused) code = enter(opened, pages, access, 0, entry);
    if (code == 0) flag_.store(refused ? Flag::refused : Flag::taken, std::memory_order_relaxed);
    return code;
  }

  /// Registers with libfabric, and fills in `entry`. On error `entry` has the parts made so far.
  Error add(Opened& opened, Range pages, Access access, FabricRegion& entry, RegistrationKey& key) {
    constexpr int kAttempts = 1000;  // the program may have keys of its own in the domain
    int code = -FI_ENOKEY;
    const auto alone = this->alone();
    for (int attempt = 0; attempt < kAttempts && code == -FI_ENOKEY; ++attempt)
      code = enter_past_the_cache(opened, pages, access, entry);
    if (code != 0) {
      entry.region = nullptr;
      return refusal(code, pages);
    }
    if (has(FI_MR_ENDPOINT)) {
      code = fi_mr_bind(entry.region, &opened.endpoint->fid, 0);
      if (code == 0) code = fi_mr_enable(entry.region);
      if (code != 0) return refusal(code, pages);
      key.endpoint = opened.endpoint;
    }
    key.descriptor = fi_mr_desc(entry.region);
    key.remote_key = fi_mr_key(entry.region);
    key.remote_base = has(FI_MR_VIRT_ADDR) ? pages.begin : 0;
    if (!has(FI_MR_RAW)) return {};
    code = read_raw_key(entry, key);
    return code == 0 ? Error{} : refusal(code, pages);
  }

  int read_raw_key(FabricRegion& entry, RegistrationKey& key) const {
    std::size_t bytes = key_bytes_;
    int code = -FI_ETOOSMALL;
    // The call returns the size it needs.
    for (int attempt = 0; attempt < 2 && code == -FI_ETOOSMALL; ++attempt) {
      entry.raw_key = std::make_unique<std::uint8_t[]>(bytes);
      code = fi_mr_raw_attr(entry.region, &key.remote_base, entry.raw_key.get(), &bytes, 0);
    }
    key.raw_key = entry.raw_key.get();
    key.raw_key_bytes = static_cast<std::uint32_t>(bytes);
    return code;
  }

  /// The rest of `entry` after an error stays registered.
  Error let_go(FabricRegion& entry, Actor actor) {
    if (entry.region != nullptr) {
      const auto alone = this->alone();
      if (const int code = fi_close(&entry.region->fid))
        return fabric_failure(code, "libfabric's provider %s refuses to deregister memory",
                              provider_.c_str());
      entry.region = nullptr;
    }
    if (entry.pinned.handle == 0) return {};
    Error error = pin_->deregister(entry.pinned, actor);
    if (!error) entry.pinned = {};
    return error;
  }

  Error refusal(int code, Range pages) const {
    const std::string size = format_size(pages.bytes());
    switch (code) {
      case -FI_EFAULT:
        return Error::make(EFAULT, "memory %#zx-%#zx is not there, or not writable", pages.begin, pages.end);
      // Drivers report too many regions so, as below libibverbs (verbs.cpp).
      case -FI_ENOMEM:
        if (!pin_ && !memlock().has_room_for(pages.bytes())) return memlock_error(ENOMEM, pages.bytes());
        [[fallthrough]];
      case -FI_EAGAIN:
      case -FI_EBUSY:
      case -FI_EINVAL:
      case -FI_ENOSPC:
      case -FI_ENOKEY:
        return Error::make(ENOSPC,
                           "libfabric's provider %s has no room for a region of %s: %s. Let idle ones go "
                           "(--limit-regions, --limit)",
                           provider_.c_str(), size.c_str(),
                           code == -FI_ENOKEY ? "no key is free" : std::strerror(-code));
      default:
        return fabric_failure(code, "libfabric's provider %s refuses to register %s", provider_.c_str(),
                              size.c_str());
    }
  }

  const FabricLibrary* const fabric_;
  const std::string provider_, domain_;
  const int mode_;
  const std::size_t key_bytes_;
  std::unique_ptr<Device> pin_;            ///< null where the provider pins
  std::atomic<Flag> flag_{Flag::untried};  ///< what the provider makes of kPastTheCache
  DeviceCapabilities capabilities_;
  std::unique_ptr<State> state_;
};

}  // namespace

FabricDeviceResult make_fabric_device(const std::string& choice) {
  Error error;
  const HeldSignals held;
  const FabricLibrary* const fabric = fabric_library(error);
  if (fabric == nullptr) return {error, nullptr};
  return make_fabric_device(*fabric, choice);
}

FabricDeviceResult make_fabric_device(const FabricLibrary& fabric, const std::string& choice) {
  const HeldSignals held;  // for threads that providers start
  auto opened = std::make_unique<Opened>();
  if (Error error = opened->open(fabric, choice)) return {error, nullptr};
  return {{}, std::make_unique<FabricDevice>(&fabric, std::move(opened))};
}

FabricDeviceResult make_fabric_device(fid_domain* domain, const fi_info* info, fid_ep* endpoint) {
  if (info->domain_attr == nullptr || info->fabric_attr == nullptr)
    return {Error::make(EINVAL, "the fi_info lacks its attributes of fabric or domain"), nullptr};
  auto opened = std::make_unique<Opened>();
  if (Error error = opened->borrow(domain, *info, endpoint)) return {error, nullptr};
  return {{}, std::make_unique<FabricDevice>(nullptr, std::move(opened))};
}

FabricProviders fabric_providers() {
  FabricProviders result;
  const HeldSignals held;
  const FabricLibrary* const fabric = fabric_library(result.error);
  return fabric == nullptr ? result : fabric_providers(*fabric);
}

FabricProviders fabric_providers(const FabricLibrary& fabric) {
  const HeldSignals held;
  FabricProviders result;
  FabricInfos infos(fabric);
  result.error = infos.ask({});
  for (const fi_info* info = infos.first; info != nullptr; info = info->next) {
    const std::string name = info->fabric_attr->prov_name;
    auto found = std::find_if(result.providers.begin(), result.providers.end(),
                              [&](const FabricProvider& known) { return known.name == name; });
    if (found == result.providers.end()) {
      found = result.providers.emplace(found);
      found->name = name;
      found->pins = fabric_pins(name);
      const int mode = fabric_mr_mode(*info);
      found->virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0;
      found->provider_keys = (mode & FI_MR_PROV_KEY) != 0;
      found->raw_keys = (mode & FI_MR_RAW) != 0;
      found->endpoint = (mode & FI_MR_ENDPOINT) != 0;
      found->local = (mode & FI_MR_LOCAL) != 0;
      found->automatic_progress = info->domain_attr->data_progress == FI_PROGRESS_AUTO;
    }
    found->rma |= (info->caps & FI_RMA) != 0;
    found->atomics |= (info->caps & FI_ATOMIC) != 0;
    found->ordered_puts |= (info->tx_attr->msg_order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW)) != 0;
  }
  return result;
}

Error check_fabric_provider(const std::string& choice) {
  Error missing;
  const FabricLibrary* const fabric = fabric_library(missing);
  return fabric == nullptr ? Error{} : check_fabric_provider(*fabric, choice);  // ranks may have one
}

Error check_fabric_provider(const FabricLibrary& fabric, const std::string& choice) {
  const HeldSignals held;
  if (fabric_needs_hardware(choice)) return {};
  fi_info* all = nullptr;
  if (fabric.getinfo(kFabricVersion, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &all) != 0) return {};
  bool is_known = false;
  std::string names;
  for (const fi_info* info = all; info != nullptr; info = info->next) {
    const std::string_view name = info->fabric_attr->prov_name;
    is_known |= name == choice || name == fabric_network(choice);
    names.append(names.empty() ? "" : ", ").append(name);
  }
  fabric.freeinfo(all);
  if (is_known) return {};
  return Error::make(ENODEV, "libfabric knows no provider '%s'; here it knows: %s", choice.c_str(),
                     names.c_str());
}

}  // namespace pinion

#else

namespace pinion {

FabricDeviceResult make_fabric_device(const std::string&) {
  return {Error::make(ENOTSUP, "built without the headers of libfabric (Debian: libfabric-dev)"), nullptr};
}
FabricDeviceResult make_fabric_device(fid_domain*, const fi_info*, fid_ep*) { return make_fabric_device(""); }
FabricProviders fabric_providers() { return {make_fabric_device("").error, {}}; }
Error check_fabric_provider(const std::string&) { return {}; }

}  // namespace pinion

#endif
