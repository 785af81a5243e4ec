#include "device/verbs/verbs.h"

#include "base/mutex.h"
#include "base/units.h"
#include "device/verbs/verbs_library.h"

#ifdef PINION_HAS_VERBS
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include "device/handle_table.h"
#include "device/kernel/fault_in.h"
#include "device/kernel/hidden_from_children.h"
#include "device/kernel/memlock.h"
#include "device/translation.h"
#include "device/verbs/own_verbs_call.h"

namespace pinion {

namespace {

int verbs_access(Access access) {
  int flags = 0;
  if (writes(access)) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (includes(access, Access::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (includes(access, Access::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

/// Which device and port: the user's words taken apart. Port 0: whichever is active.
struct Choice {
  std::string name;
  unsigned port = 0;
};

Error parse(const std::string& text, Choice& choice) {
  const auto colon = text.find(':');
  choice.name = text.substr(0, colon);
  if (colon == std::string::npos) return {};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + colon + 1, end, choice.port);
  if (error == std::errc{} && stopped == end && choice.port >= 1 && choice.port <= 255) return {};
  return Error::make(EINVAL, "'%s' names no port of an RDMA device: NAME:PORT, PORT from 1 to 255",
                     text.c_str());
}

/// The port's number when it is active (any where none is asked for), else 0.
unsigned active_port(const VerbsLibrary& verbs, ibv_context* context, unsigned wanted, unsigned ports) {
  for (unsigned port = 1; port <= ports; ++port) {
    if (wanted != 0 && port != wanted) continue;
    ibv_port_attr attributes{};
    // The library's own function fills in the original fields, the state among them.
    if (verbs.query_port(context, static_cast<std::uint8_t>(port),
                         reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) == 0 &&
        attributes.state == IBV_PORT_ACTIVE)
      return port;
  }
  return 0;
}

/// Whether reliable connections, which all transfers of large memory have, may send, write and read by
/// on-demand paging. The operation is the provider's, in the context's own table; old providers have none.
bool has_on_demand_paging(ibv_context* context) {
  verbs_context* const table = verbs_get_ctx_op(context, query_device_ex);
  ibv_device_attr_ex attributes{};
  if (table == nullptr || table->query_device_ex(context, nullptr, &attributes, sizeof attributes) != 0)
    return false;
  constexpr std::uint32_t kNeeded =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  return (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
         (attributes.odp_caps.per_transport_caps.rc_odp_caps & kNeeded) == kNeeded;
}

/// Advice, no more: the device faults the rest in.
void prefetch(ibv_pd* pd, Range pages, const ibv_mr* region, Access access) {
  verbs_context* const table = verbs_get_ctx_op(pd->context, advise_mr);
  if (table == nullptr) return;
  constexpr std::size_t kMostInAnElement = std::size_t{1} << 30;  // its length has 32 bits
  while (!pages.empty()) {
    const std::size_t bytes = std::min(pages.bytes(), kMostInAnElement);
    ibv_sge element{pages.begin, static_cast<std::uint32_t>(bytes), region->lkey};
    const auto advice = writes(access) ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH;
    if (table->advise_mr(pd, advice, 0, &element, 1) != 0) return;
    pages.begin += bytes;
  }
}

/// A context and a protection domain. It closes all that it opened.
class Opened {
 public:
  explicit Opened(const VerbsLibrary& verbs) : verbs_(verbs) {}
  ~Opened() {
    if (!owner_) return;
    if (pd != nullptr) verbs_.dealloc_pd(pd);
    if (context != nullptr) verbs_.close_device(context);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  Error open(const Choice& choice) {
    int count = 0;
    ibv_device** const devices = verbs_.get_device_list(&count);
    if (devices == nullptr || count == 0) {
      if (devices != nullptr) verbs_.free_device_list(devices);
      return Error::make(ENODEV, "this machine has no RDMA device (ibv_devinfo shows them)");
    }
    std::string names;
    for (int i = 0; i < count && port == 0; ++i) {
      const std::string name = verbs_.get_device_name(devices[i]);
      names += (names.empty() ? "" : ", ") + name;
      if (choice.name.empty() || name == choice.name) use(devices[i], choice.port);
    }
    verbs_.free_device_list(devices);
    if (port != 0) {
      pd = verbs_.alloc_pd(context);
      if (pd != nullptr) return {};
      return Error::make(errno, "%s gives no protection domain: %s", verbs_.get_device_name(context->device),
                         std::strerror(errno));
    }
    if (choice.name.empty())
      return Error::make(ENODEV, "no RDMA device has an active port, or none may be opened; there are: %s",
                         names.c_str());
    const std::string asked = choice.name + (choice.port ? ":" + std::to_string(choice.port) : "");
    return Error::make(ENODEV, "RDMA device %s is not there, not active or may not be opened; there are: %s",
                       asked.c_str(), names.c_str());
  }

  /// The program's own.
  Error borrow(ibv_pd* theirs) {
    owner_ = false;
    pd = theirs;
    context = theirs->context;
    if (const int code = verbs_.query_device(context, &attributes))
      return Error::make(code, "RDMA device %s does not answer: %s", verbs_.get_device_name(context->device),
                         std::strerror(code));
    return {};
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  unsigned port = 0;  ///< of what was opened
  ibv_device_attr attributes{};

 private:
  void use(ibv_device* device, unsigned wanted) {
    context = verbs_.open_device(device);
    if (context == nullptr) return;
    if (verbs_.query_device(context, &attributes) == 0)
      port = active_port(verbs_, context, wanted, attributes.phys_port_cnt);
    if (port != 0) return;
    verbs_.close_device(context);
    context = nullptr;
  }

  const VerbsLibrary& verbs_;
  bool owner_ = true;
};

/// A driver may have windows and refuse regions for them: it is asked for one, as a refusal by libibverbs can
/// leave its marks on memory.
bool allows_windows(const VerbsLibrary& verbs, const Opened& opened) {
  constexpr unsigned kWindows =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if ((opened.attributes.device_cap_flags & kWindows) == 0) return false;
  void* const page = ::mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const OwnVerbsCall own_call;
  ibv_mr* const region =
      verbs.reg_mr(opened.pd, page, page_size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  if (region != nullptr) verbs.dereg_mr(region);
  ::munmap(page, page_size());
  return region != nullptr;
}

/// Whether libibverbs marks memory that it registers, so that forked children lack it.
bool marks_registered(const VerbsLibrary& verbs, ibv_pd* pd) {
  return hides_from_children([&](Range page, FunctionRef<void()> look) {
    const OwnVerbsCall own_call;
    ibv_mr* const region =
        verbs.reg_mr(pd, reinterpret_cast<void*>(page.begin), page.bytes(), IBV_ACCESS_LOCAL_WRITE);
    if (region == nullptr) return;
    look();
    verbs.dereg_mr(region);
  });
}

class VerbsDevice final : public Device {
 public:
  VerbsDevice(const VerbsLibrary& verbs, std::unique_ptr<Opened> opened, Paging paging,
              std::optional<int> extra_access = std::nullopt)
      : verbs_(verbs),
        on_demand_(paging == Paging::on_demand),
        extra_access_(extra_access),
        choice_{verbs.get_device_name(opened->context->device), opened->port},
        state_(std::make_unique<State>(1)) {
    capabilities_.pins = !on_demand_;
    capabilities_.on_demand = on_demand_;
    constexpr int kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    capabilities_.remote = (extra_access_.value_or(kRemote) & kRemote) != 0;
    capabilities_.hides_from_children = capabilities_.splits_mappings =
        !on_demand_ && marks_registered(verbs, opened->pd);
    if (!on_demand_) capabilities_.page_sizes = opened->attributes.page_size_cap;
    // Programs never see the region itself in domains of the verbs front.
    windows_ = !on_demand_ && !extra_access_ && allows_windows(verbs, *opened);
    capabilities_.caps.max_regions = static_cast<std::size_t>(std::max(opened->attributes.max_mr, 0));
    capabilities_.caps.max_region_bytes = opened->attributes.max_mr_size;
    state_->opened = std::move(opened);
  }

  ~VerbsDevice() override {
    const OwnVerbsCall own_call;
    while (const auto region = state_->table.take_any()) verbs_.dereg_mr(*region);
  }

  const char* name() const override { return on_demand_ ? "verbs-odp" : "verbs"; }

  std::string description() const override {
    std::string text = choice_.port == 0 ? "registers in the program's protection domain of RDMA device "
                                         : "registers with RDMA device ";
    text += choice_.name;
    if (choice_.port != 0) text += ", port " + std::to_string(choice_.port);
    if (on_demand_) text += ", which pins nothing (on-demand paging)";
    if (verbs_.is_fork_initialized != nullptr && verbs_.is_fork_initialized() == IBV_FORK_DISABLED)
      text += " (a program that forks needs RDMAV_FORK_SAFE=1 on this kernel)";
    return text;
  }

  DeviceCapabilities capabilities() const override { return capabilities_; }

  Registration register_range(Range pages, Access access, Actor actor) override {
    if (pages.empty() || pages.to_pages() != pages)
      return {Error::make(EINVAL, "memory %#zx-%#zx is not whole pages", pages.begin, pages.end), {}, {}};
    Error error;
    ibv_pd* const pd = protection_domain(error);
    if (pd == nullptr) return {error, {}, {}};
    // Faults are dearer inside the driver, which holds the process's memory map meanwhile.
    if (!on_demand_)
      if (Error refused = fault_in(pages, writes(access))) return {refused, {}, {}};
    if (extra_access_) access = local_part(access);
    // To the kernel, windows make memory writable.
    const int flags = verbs_access(access) | extra_access_.value_or(0) |
                      (on_demand_ ? IBV_ACCESS_ON_DEMAND : 0) |
                      (windows_ && writes(access) ? IBV_ACCESS_MW_BIND : 0);
    const OwnVerbsCall own_call;
    ibv_mr* const region = verbs_.reg_mr(pd, reinterpret_cast<void*>(pages.begin), pages.bytes(), flags);
    if (region == nullptr) return {refusal(errno, pages), {}, {}};
    if (on_demand_ && actor == Actor::helper) prefetch(pd, pages, region, access);
    Registration made;
    made.granted = access;
    made.key.handle = state_->table.add(region);
    made.key.lkey = region->lkey;
    made.key.descriptor = region;
    made.key.system_handle = region->handle;
    made.key.remote_key = region->rkey;
    made.key.remote_base = pages.begin;
    if (!on_demand_) made.entries = translation_entries(pages, capabilities_.page_sizes, state_->files);
    return made;
  }

  Error deregister(const RegistrationKey& key, Actor) override {
    const auto region = state_->table.take(key.handle);
    if (!region) return {};
    const OwnVerbsCall own_call;
    // Restores the entry also where the library throws.
    struct Entry {
      ~Entry() {
        if (table != nullptr) table->restore(handle, region);
      }
      HandleTable<ibv_mr*>* table;
      const std::uint64_t handle;
      ibv_mr* const region;
    } entry{&state_->table, key.handle, *region};
    const int code = verbs_.dereg_mr(*region);
    if (code == 0) {
      entry.table = nullptr;
      return {};
    }
    return Error::make(code, "RDMA device %s refuses to deregister memory: %s", choice_.name.c_str(),
                       std::strerror(code));
  }

  void abandon_after_fork() override {
    // Leaked on purpose: context and regions are the parent's and refer to its memory.
    // Made anew in its place: the allocator may be locked by a thread that is not here.
    const std::uint64_t first = state_->table.next_after_fork();
    new (state_.get()) State(first);
  }

 private:
  struct State {
    explicit State(std::uint64_t first_handle) : table(first_handle) {}
    Mutex mutex;
    std::unique_ptr<Opened> opened GUARDED_BY(mutex);
    HandleTable<ibv_mr*> table;
    PageFiles files;
  };

  /// Opened anew in a forked child: registering by the parent's context fails there.
  ibv_pd* protection_domain(Error& error) {
    const MutexLock lock(state_->mutex);
    if (!state_->opened && choice_.port == 0) {
      error = Error::make(ENODEV, "a forked child cannot register in its parent's protection domain");
      return nullptr;
    }
    if (!state_->opened) {
      auto opened = std::make_unique<Opened>(verbs_);
      error = opened->open(choice_);
      if (error) return nullptr;
      state_->opened = std::move(opened);
    }
    return state_->opened->pd;
  }

  Error refusal(int code, Range pages) const {
    switch (code) {
      case EFAULT:
        return Error::make(code, "memory %#zx-%#zx is not there, or not writable", pages.begin, pages.end);
      // Drivers and cgroups report too many regions so. The arguments are valid otherwise.
      case ENOMEM:
        if (!memlock().has_room_for(pages.bytes())) return memlock_error(code, pages.bytes());
        [[fallthrough]];
      case EAGAIN:
      case EBUSY:
      case EINVAL:
      case ENOSPC:
        return Error::make(
            ENOSPC,
            "RDMA device %s has no room for a region of %s: %s. All processes together may have %zu, a "
            "cgroup perhaps fewer (rdma.max), and of memory what there is: let idle ones go "
            "(--limit-regions, --limit)",
            choice_.name.c_str(), format_size(pages.bytes()).c_str(), std::strerror(code),
            capabilities_.caps.max_regions);
      default:
        return Error::make(code, "RDMA device %s refuses to register %s: %s", choice_.name.c_str(),
                           format_size(pages.bytes()).c_str(), std::strerror(code));
    }
  }

  const VerbsLibrary& verbs_;
  const bool on_demand_;
  const std::optional<int> extra_access_;
  const Choice choice_;  ///< what was opened; port 0: the program's protection domain
  DeviceCapabilities capabilities_;
  bool windows_ = false;  ///< regions may have memory windows
  std::unique_ptr<State> state_;
};

}  // namespace

VerbsDeviceResult make_verbs_device(const std::string& choice, Paging paging) {
  Error error;
  const VerbsLibrary* const verbs = verbs_library(error);
  if (verbs == nullptr) return {error, nullptr};
  return make_verbs_device(*verbs, choice, paging);
}

VerbsDeviceResult make_verbs_device(const VerbsLibrary& verbs, const std::string& choice, Paging paging) {
  Choice wanted;
  if (Error error = parse(choice, wanted)) return {error, nullptr};
  auto opened = std::make_unique<Opened>(verbs);
  if (Error error = opened->open(wanted)) return {error, nullptr};
  if (paging == Paging::on_demand && !has_on_demand_paging(opened->context))
    return {Error::make(ENOTSUP, "RDMA device %s has no on-demand paging; device verbs pins",
                        verbs.get_device_name(opened->context->device)),
            nullptr};
  return {{}, std::make_unique<VerbsDevice>(verbs, std::move(opened), paging)};
}

VerbsDeviceResult make_verbs_device(ibv_pd* pd, std::optional<int> extra_access, const VerbsLibrary* verbs) {
  Error error;
  const void* const code = code_of_provider(*pd->context);
  if (const VerbsLibrary* const opener = code != nullptr ? verbs_library_behind(code) : nullptr)
    verbs = opener;
  if (verbs == nullptr) verbs = loaded_verbs_library(error);
  if (verbs == nullptr) return {error, nullptr};
  auto opened = std::make_unique<Opened>(*verbs);
  error = opened->borrow(pd);
  if (error) return {error, nullptr};
  return {{}, std::make_unique<VerbsDevice>(*verbs, std::move(opened), Paging::pinned, extra_access)};
}

}  // namespace pinion

#else

namespace pinion {

VerbsDeviceResult make_verbs_device(const std::string&, Paging) {
  return {Error::make(ENOTSUP, "built without the headers of libibverbs (Debian: libibverbs-dev)"), nullptr};
}
VerbsDeviceResult make_verbs_device(ibv_pd*, std::optional<int>, const VerbsLibrary*) {
  return make_verbs_device("", Paging::pinned);
}

}  // namespace pinion

#endif
