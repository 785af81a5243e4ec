#include "transfer/endpoint/raw_keys.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_errno.h>

#include <algorithm>
#include <new>
#include <utility>

namespace pinion::transfer {

int RawKeys::map(fid_domain* domain, const RawKey& raw, std::uint64_t& key) {
  RawKey copy = raw;  // the call takes bytes that it may write
  if (const int code = fi_mr_map_raw(domain, raw.base, copy.data.data(), raw.bytes, &key, 0)) return code;
  try {
    const MutexLock lock(mutex_);
    mapped_.push_back(key);
    return 0;
  } catch (const std::bad_alloc&) {
    fi_mr_unmap_key(domain, key);
    return -FI_ENOMEM;
  }
}

void RawKeys::unmap(fid_domain* domain, std::uint64_t key) {
  {
    const MutexLock lock(mutex_);
    const auto found = std::find(mapped_.begin(), mapped_.end(), key);
    if (found == mapped_.end()) return;
    *found = mapped_.back();
    mapped_.pop_back();
  }
  fi_mr_unmap_key(domain, key);
}

void RawKeys::unmap_all(fid_domain* domain) {
  std::vector<std::uint64_t> keys;
  {
    const MutexLock lock(mutex_);
    keys = std::exchange(mapped_, {});
  }
  for (const std::uint64_t key : keys) fi_mr_unmap_key(domain, key);
}

}  // namespace pinion::transfer
#endif
