// A libfabric that is made up: the test sets its providers, any call of theirs fails when the test wants, and
// it counts open objects. Registers nothing. Its endpoint reaches
// itself: data moves at once, in order, and completes at the next reading of the queue. One at a time; its
// objects may be used by any thread.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device/fabric/fabric_infos.h"

namespace pinion::test {

class MadeFabric {
 public:
  struct Provider {
    std::string name;
    int mode = 0;
    std::size_t key_bytes = 8;
    std::uint64_t caps = FI_MSG | FI_RMA;
    std::size_t most_regions = 0;
    fi_threading threading = FI_THREAD_SAFE;
    fi_progress progress = FI_PROGRESS_MANUAL;
    std::uint64_t order = 0;
  };
  struct Region {
    const void* address;
    std::size_t bytes;
    std::uint64_t access, key, flags = 0;
    bool bound = false, enabled = false;
  };

  std::uint64_t known_flags = ~std::uint64_t{0};  ///< of registrations; others are refused
  unsigned asked = 0;                             ///< for registrations

  explicit MadeFabric(std::vector<Provider> providers) : providers_(std::move(providers)) {
    library_.dupinfo = [](const fi_info*) { return made_->new_info(); };
    library_.freeinfo = free_info;
    library_.getinfo = [](std::uint32_t, const char*, const char*, std::uint64_t, const fi_info* hints,
                          fi_info** list) { return made_->list(hints ? *hints : fi_info{}, list); };
    library_.fabric = [](fi_fabric_attr*, fid_fabric** fabric, void*) {
      const int code = made_->open(&made_->fabric_.fid, "fi_fabric");
      if (code == 0) *fabric = &made_->fabric_;
      return code;
    };
    close_ops_.close = [](fid* object) { return made_->close(object); };
    close_ops_.bind = [](fid*, fid*, std::uint64_t) { return made_->call("fi_bind"); };
    close_ops_.control = [](fid*, int command, void* argument) {
      switch (command) {
        case FI_GETWAIT:
          return -FI_ENOSYS;
        case FI_MAP_RAW_MR:
          return made_->map_raw(*static_cast<struct fi_mr_map_raw*>(argument));
        case FI_UNMAP_KEY:
          return made_->unmap(*static_cast<std::uint64_t*>(argument));
        default:
          return made_->call("fi_enable");
      }
    };
    region_ops_ = close_ops_;
    region_ops_.close = [](fid* object) { return made_->close_region(object); };
    region_ops_.bind = [](fid* object, fid* to, std::uint64_t) { return made_->bind_region(object, to); };
    region_ops_.control = [](fid* object, int command, void* argument) {
      return made_->control_region(object, command, argument);
    };
    fabric_ops_.domain = [](fid_fabric*, fi_info* info, fid_domain** domain, void*) {
      made_->mode_ = info->domain_attr->mr_mode;
      const int code = made_->open(&made_->domain.fid, "fi_domain");
      if (code == 0) *domain = &made_->domain;
      return code;
    };
    domain_ops_.av_open = [](fid_domain*, fi_av_attr*, fid_av** addresses, void*) {
      const int code = made_->open(&made_->addresses_.fid, "fi_av_open");
      if (code == 0) *addresses = &made_->addresses_;
      return code;
    };
    domain_ops_.cq_open = [](fid_domain*, fi_cq_attr*, fid_cq** queue, void*) {
      const int code = made_->open(&made_->queue_.fid, "fi_cq_open");
      if (code == 0) *queue = &made_->queue_;
      return code;
    };
    domain_ops_.endpoint = [](fid_domain*, fi_info*, fid_ep** endpoint, void*) {
      const int code = made_->open(&made_->endpoint.fid, "fi_endpoint");
      if (code == 0) *endpoint = &made_->endpoint;
      return code;
    };
    region_of_domain_.reg = [](fid*, const void* address, std::size_t bytes, std::uint64_t access,
                               std::uint64_t, std::uint64_t key, std::uint64_t flags, fid_mr** region,
                               void*) {
      ++made_->asked;
      if ((flags & ~made_->known_flags) != 0) return -FI_EBADFLAGS;
      return made_->add({address, bytes, access, key, flags}, region);
    };
    for (fid* object : {&fabric_.fid, &domain.fid, &addresses_.fid, &queue_.fid, &endpoint.fid})
      object->ops = &close_ops_;
    address_ops_.insert = [](fid_av*, const void*, std::size_t, fi_addr_t* to, std::uint64_t, void*) {
      *to = made_->next_address_++;
      return made_->call("fi_av_insert") == 0 ? 1 : 0;
    };
    addresses_.ops = &address_ops_;
    queue_ops_.read = [](fid_cq*, void* into, std::size_t count) {
      return made_->read_queue(into, count, nullptr);
    };
    queue_ops_.readfrom = [](fid_cq*, void* into, std::size_t count, fi_addr_t* sources) {
      return made_->read_queue(into, count, sources);
    };
    queue_ops_.readerr = [](fid_cq*, fi_cq_err_entry* into, std::uint64_t) {
      return made_->read_error(*into);
    };
    queue_.ops = &queue_ops_;
    name_ops_.getname = [](fid*, void* name, std::size_t* length) {
      std::memcpy(name, "made", *length = 5);
      return made_->call("fi_getname");
    };
    endpoint.cm = &name_ops_;
    message_ops_.recv = [](fid_ep*, void* buffer, std::size_t bytes, void*, fi_addr_t, void* context) {
      return made_->receive({buffer, bytes, context});
    };
    message_ops_.sendmsg = [](fid_ep*, const fi_msg* message, std::uint64_t) {
      return made_->send(*message);
    };
    endpoint.msg = &message_ops_;
    transfer_ops_.writemsg = [](fid_ep*, const fi_msg_rma* message, std::uint64_t) {
      return made_->transfer(*message, "fi_writemsg");
    };
    transfer_ops_.readmsg = [](fid_ep*, const fi_msg_rma* message, std::uint64_t) {
      return made_->transfer(*message, "fi_readmsg");
    };
    endpoint.rma = &transfer_ops_;
    fabric_.ops = &fabric_ops_;
    domain.ops = &domain_ops_;
    domain.mr = &region_of_domain_;
  }
  ~MadeFabric() {
    EXPECT_TRUE(regions_.empty()) << "registrations are left";
    EXPECT_TRUE(mapped_.empty()) << "keys are left mapped";
    EXPECT_TRUE(open_.empty()) << "objects are left open";
    EXPECT_EQ(infos_, 0);
  }
  MadeFabric(const MadeFabric&) = delete;
  MadeFabric& operator=(const MadeFabric&) = delete;

  /// Its functions; those of another one are of no use from now on.
  const FabricLibrary& library() {
    made_ = this;
    return library_;
  }
  std::vector<Region> regions() const {
    const std::lock_guard lock(mutex_);
    std::vector<Region> regions;
    for (const auto& [object, region] : regions_) regions.push_back(region);
    return regions;
  }
  std::size_t live() const { return regions().size(); }
  /// A program opens `domain` and `endpoint`, and has this of it; freed by free_info().
  fi_info* open_by_program(const Provider& provider) {
    made_ = this;
    mode_ = provider.mode;
    return info(provider);
  }
  static void free_info(fi_info* info) {
    while (info != nullptr) {
      fi_info* const next = info->next;
      std::free(info->fabric_attr->prov_name);
      std::free(info->domain_attr->name);
      std::free(info->fabric_attr);
      std::free(info->domain_attr);
      std::free(info->ep_attr);
      std::free(info->tx_attr);
      std::free(info->rx_attr);
      std::free(info);
      --made_->infos_;
      info = next;
    }
  }

  fid_domain domain{};
  fid_ep endpoint{};
  /// The key of a region whose keys are the provider's.
  static constexpr std::uint64_t kItsKey = 0x1234'5678'9abc'def0;
  static constexpr std::uint64_t kRawBase = 0x7000;
  std::string raw_key = "a key of 20 bytes...";
  /// Raw keys name their region, and a transfer needs one that is mapped; otherwise all keys are alike.
  bool checks_raw_keys = false;
  /// The peer that sends; messages have it as their source, if the provider has FI_SOURCE.
  fi_addr_t source = 0;
  /// Keys that the program has taken.
  std::set<std::uint64_t> taken;
  /// Each call of a provider by its name: 0, or the error (negative) that it ends with. Under the mutex.
  std::function<int(const std::string&)> refuse = [](const std::string&) { return 0; };

 private:
  bool gives_keys() const { return mode_ == kMrBasic || (mode_ & FI_MR_PROV_KEY) != 0; }
  int call(const char* name) {
    const std::lock_guard lock(mutex_);
    return refuse(name);
  }
  int open(fid* object, const char* name) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse(name)) return code;
    open_.insert(object);
    return 0;
  }
  int close(fid* object) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(object);
    EXPECT_NE(found, open_.end()) << "closed, but not open";
    if (found != open_.end()) open_.erase(found);
    if (object == &domain.fid) {
      EXPECT_TRUE(regions_.empty()) << "closed with registrations";
    }
    return 0;
  }

  int add(Region region, fid_mr** made) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_mr_reg")) return code;
    if (!gives_keys()) {
      if (!keys_.insert(region.key).second || taken.contains(region.key)) {
        keys_.erase(region.key);
        return -FI_ENOKEY;
      }
    } else {
      EXPECT_EQ(region.key, 0u);
    }
    auto* const object = new fid_mr{};
    object->fid.ops = &region_ops_;
    object->mem_desc = object;
    object->key = (mode_ & FI_MR_RAW) ? FI_KEY_NOTAVAIL : gives_keys() ? kItsKey : region.key;
    regions_.emplace(object, region);
    *made = object;
    return 0;
  }
  int close_region(fid* object) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_close")) return code;
    const auto found = regions_.find(reinterpret_cast<fid_mr*>(object));
    if (found == regions_.end()) {
      ADD_FAILURE() << "deregistered twice, or never registered";
      return 0;
    }
    keys_.erase(found->second.key);
    delete found->first;
    regions_.erase(found);
    return 0;
  }
  int bind_region(fid* object, fid* to) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_mr_bind")) return code;
    EXPECT_EQ(to, &endpoint.fid);
    regions_.at(reinterpret_cast<fid_mr*>(object)).bound = true;
    return 0;
  }
  int control_region(fid* object, int command, void* argument) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse(command == FI_ENABLE ? "fi_mr_enable" : "fi_mr_raw_attr")) return code;
    if (command == FI_ENABLE) {
      regions_.at(reinterpret_cast<fid_mr*>(object)).enabled = true;
      return 0;
    }
    EXPECT_EQ(command, FI_GET_RAW_MR);
    const auto& asked = *static_cast<struct fi_mr_raw_attr*>(argument);
    const bool small = *asked.key_size < raw_key.size();
    *asked.key_size = raw_key.size();
    if (small) return -FI_ETOOSMALL;
    *asked.base_addr = kRawBase;
    std::memcpy(asked.raw_key, raw_key.data(), raw_key.size());
    if (checks_raw_keys) {
      *asked.base_addr =
          reinterpret_cast<std::uint64_t>(regions_.at(reinterpret_cast<fid_mr*>(object)).address);
      std::memcpy(asked.raw_key, &object, sizeof object);
    }
    return 0;
  }
  int map_raw(const struct fi_mr_map_raw& asked) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_mr_map_raw")) return code;
    EXPECT_EQ(asked.key_size, raw_key.size());
    fid_mr* object;
    std::memcpy(&object, asked.raw_key, sizeof object);
    const auto region = regions_.find(object);
    EXPECT_NE(region, regions_.end()) << "a key of no region";
    if (region == regions_.end()) return -FI_ENOKEY;
    EXPECT_EQ(asked.base_addr, reinterpret_cast<std::uint64_t>(region->second.address));
    *asked.key = ++last_mapped_;
    mapped_.emplace(*asked.key, region->second);
    return 0;
  }
  int unmap(std::uint64_t key) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(mapped_.erase(key), 1u) << "a key that is not mapped";
    return 0;
  }

  struct Posted {
    void* buffer;
    std::size_t bytes;
    void* context;
  };
  ssize_t receive(Posted posted) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_recv")) return code;
    receives_.push_back(posted);
    return 0;
  }
  /// Fails late on refuse("completion"): an operation is taken, and fails later; so does a receive by
  /// "receipt".
  void complete(void* context, std::size_t bytes, const char* name = "completion") {
    if (const int code = refuse(name))
      errors_.push_back({context, -code});
    else
      completions_.push_back({{context, 0, bytes}, source});
  }
  ssize_t send(const fi_msg& message) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_sendmsg")) return code;
    if (receives_.empty()) return -FI_EAGAIN;
    const Posted to = receives_.front();
    receives_.pop_front();
    const iovec& from = message.msg_iov[0];
    EXPECT_LE(from.iov_len, to.bytes);
    std::memcpy(to.buffer, from.iov_base, from.iov_len);
    complete(message.context, 0);
    complete(to.context, from.iov_len, "receipt");
    return 0;
  }
  ssize_t transfer(const fi_msg_rma& message, const char* name) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse(name)) return code;
    void* const remote = reinterpret_cast<void*>(message.rma_iov[0].addr);
    const iovec& local = message.msg_iov[0];
    if (checks_raw_keys) {
      const auto mapped = mapped_.find(message.rma_iov[0].key);
      EXPECT_NE(mapped, mapped_.end()) << "a key that is not mapped";
      if (mapped == mapped_.end()) return -FI_ENOKEY;
      const auto begin = reinterpret_cast<std::uint64_t>(mapped->second.address);
      EXPECT_GE(message.rma_iov[0].addr, begin);
      EXPECT_LE(message.rma_iov[0].addr + local.iov_len, begin + mapped->second.bytes);
    }
    if (name == std::string("fi_writemsg"))
      std::memcpy(remote, local.iov_base, local.iov_len);
    else
      std::memcpy(local.iov_base, remote, local.iov_len);
    complete(message.context, 0);
    return 0;
  }
  ssize_t read_queue(void* into, std::size_t count, fi_addr_t* sources) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_cq_read")) return code;
    if (!errors_.empty()) return -FI_EAVAIL;
    ssize_t given = 0;
    for (auto* entry = static_cast<fi_cq_msg_entry*>(into);
         !completions_.empty() && std::size_t(given) < count; ++given) {
      entry[given] = completions_.front().entry;
      if (sources != nullptr) sources[given] = completions_.front().source;
      completions_.pop_front();
    }
    return given == 0 ? -FI_EAGAIN : given;
  }
  ssize_t read_error(fi_cq_err_entry& into) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse("fi_cq_readerr")) return code;
    if (errors_.empty()) return -FI_EAGAIN;
    into.op_context = errors_.front().context;
    into.err = errors_.front().code;
    errors_.pop_front();
    return 1;
  }

  fi_info* new_info() {
    ++infos_;
    auto* const info = static_cast<fi_info*>(std::calloc(1, sizeof(fi_info)));
    info->fabric_attr = static_cast<fi_fabric_attr*>(std::calloc(1, sizeof(fi_fabric_attr)));
    info->domain_attr = static_cast<fi_domain_attr*>(std::calloc(1, sizeof(fi_domain_attr)));
    info->ep_attr = static_cast<fi_ep_attr*>(std::calloc(1, sizeof(fi_ep_attr)));
    info->tx_attr = static_cast<fi_tx_attr*>(std::calloc(1, sizeof(fi_tx_attr)));
    info->rx_attr = static_cast<fi_rx_attr*>(std::calloc(1, sizeof(fi_rx_attr)));
    return info;
  }
  fi_info* info(const Provider& provider) {
    fi_info* const made = new_info();
    fi_info& info = *made;
    info.caps = provider.caps;
    info.fabric_attr->prov_name = ::strdup(provider.name.c_str());
    info.domain_attr->name = ::strdup("made0");
    info.domain_attr->mr_mode = provider.mode;
    info.domain_attr->mr_key_size = provider.key_bytes;
    info.domain_attr->mr_cnt = provider.most_regions;
    info.domain_attr->threading = provider.threading;
    info.domain_attr->data_progress = provider.progress;
    info.tx_attr->msg_order = provider.order;
    info.ep_attr->max_msg_size = std::size_t{1} << 30;
    return made;
  }
  int list(const fi_info& hints, fi_info** list) {
    if (const int code = call("fi_getinfo")) return code;
    fi_info** next = list;
    *list = nullptr;
    for (const Provider& provider : providers_) {
      if ((provider.caps & hints.caps) != hints.caps) continue;
      *next = info(provider);
      next = &(*next)->next;
    }
    return *list == nullptr ? -FI_ENODATA : 0;
  }

  static inline MadeFabric* made_ = nullptr;
  FabricLibrary library_;
  fi_ops close_ops_{}, region_ops_{};
  fi_ops_fabric fabric_ops_{};
  fi_ops_domain domain_ops_{};
  fi_ops_mr region_of_domain_{};
  fi_ops_av address_ops_{};
  fi_ops_cq queue_ops_{};
  fi_ops_cm name_ops_{};
  fi_ops_msg message_ops_{};
  fi_ops_rma transfer_ops_{};
  fid_fabric fabric_{};
  fid_av addresses_{};
  fid_cq queue_{};
  const std::vector<Provider> providers_;
  int mode_ = 0;              ///< of the domain that is open
  mutable std::mutex mutex_;  ///< guards all below, `taken` and `refuse`
  std::map<fid_mr*, Region> regions_;
  std::set<std::uint64_t> keys_;
  std::map<std::uint64_t, Region> mapped_;
  std::uint64_t last_mapped_ = 0;
  std::multiset<fid*> open_;  ///< a forked child opens some a second time
  int infos_ = 0;
  struct Failed {
    void* context;
    int code;
  };
  std::deque<Posted> receives_;
  struct Completed {
    fi_cq_msg_entry entry;
    fi_addr_t source;
  };
  std::deque<Completed> completions_;
  fi_addr_t next_address_ = 0;  ///< peers have the numbers of their ranks
  std::deque<Failed> errors_;
};

}  // namespace pinion::test
