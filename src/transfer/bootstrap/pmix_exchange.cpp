#include "transfer/bootstrap/pmix_exchange.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/futex.h"
#include "base/held_signals.h"
#include "base/own_loading.h"
#include "device/optional_library.h"
#include "transfer/bootstrap/pmix_abi.h"

namespace pinion::transfer {

namespace {

constexpr std::size_t kMostCard = 4096;
constexpr int kSecondsForOne = 10;  ///< a card, once all are there

struct PmixLibrary {
  pmix::Status (*init)(pmix::Proc*, pmix::Info*, std::size_t) = nullptr;
  pmix::Status (*finalize)(const pmix::Info*, std::size_t) = nullptr;
  pmix::Status (*put)(std::uint8_t, const char*, pmix::Value*) = nullptr;
  pmix::Status (*commit)() = nullptr;
  pmix::Status (*fence)(const pmix::Proc*, std::size_t, const pmix::Info*, std::size_t, pmix::Done,
                        void*) = nullptr;
  pmix::Status (*get)(const pmix::Proc*, const char*, const pmix::Info*, std::size_t,
                      pmix::Value**) = nullptr;
  const char* (*error)(pmix::Status) = nullptr;
};

OptionalLibrary<PmixLibrary> load() {
  OptionalLibrary<PmixLibrary> loaded;
  void* const library = load_library("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    loaded.error = Error::make(ENOENT, "libpmix cannot be loaded (%s); Debian: libpmix2", ::dlerror());
    return loaded;
  }
  SymbolFinder symbols(library);
  PmixLibrary& pmix = loaded.functions;
  symbols.find(pmix.init, "PMIx_Init");
  symbols.find(pmix.finalize, "PMIx_Finalize");
  symbols.find(pmix.put, "PMIx_Put");
  symbols.find(pmix.commit, "PMIx_Commit");
  symbols.find(pmix.fence, "PMIx_Fence_nb");
  symbols.find(pmix.get, "PMIx_Get");
  symbols.find(pmix.error, "PMIx_Error_string");
  if (!symbols.missing().empty())
    loaded.error = Error::make(ENOSYS, "libpmix has no %s", symbols.missing().c_str());
  return loaded;
}

pmix::Info info(const char* key, std::uint16_t type) {
  pmix::Info made{};
  std::strncpy(made.key, key, sizeof made.key - 1);
  made.value.type = type;
  return made;
}

/// The callback may come after the wait has ended.
struct Fence {
  std::atomic<std::uint32_t> ended{0};
  std::atomic<pmix::Status> status{pmix::kSuccess};
};

/// One exchange, from PMIx_Init to PMIx_Finalize.
class Exchange {
 public:
  Exchange(const PmixLibrary& pmix, const Card& own) : pmix_(pmix), own_(own) {
    static std::atomic<unsigned> exchanges{0};
    key_ = "pinion.card." + std::to_string(exchanges.fetch_add(1));
  }

  Error begin() {
    const HeldSignals held;  // for the library's thread
    return checked(pmix_.init(&self_, nullptr, 0), "does not begin");
  }
  /// Not while a fence is under way: the library would wait for it.
  void end() {
    const HeldSignals held;
    if (meets_) static_cast<void>(pmix_.finalize(nullptr, 0));
  }

  Error run(Duration within, std::vector<Card>& cards) {
    Error error = check_job();
    if (!error) error = publish();
    if (!error) error = meet(within);
    cards.assign(own_.peers, {});
    for (Peer rank = 0; !error && rank < own_.peers; ++rank) error = read(rank, cards[rank]);
    return error;
  }

 private:
  Error checked(pmix::Status status, const char* failure) const {
    if (status == pmix::kSuccess) return {};
    return Error::make(EIO, "PMIx %s: %s", failure, pmix_.error(status));
  }

  Error check_job() const {
    const pmix::Proc all = process(pmix::kAnyRank);
    pmix::Value* value = nullptr;
    if (Error error =
            checked(pmix_.get(&all, pmix::kJobSize, nullptr, 0, &value), "knows no size of the job"))
      return error;
    const std::uint32_t size = value->type == pmix::kUint32 ? value->data.uint32 : 0;
    std::free(value);
    if (self_.rank == own_.rank && size == own_.peers) return {};
    return Error::make(EINVAL, "PMIx numbers this process %u of %u, the caller %u of %u", self_.rank, size,
                       own_.rank, own_.peers);
  }

  Error publish() const {
    std::string card = card_to_bytes(own_);
    pmix::Value value{};
    value.type = pmix::kByteObject;
    value.data.bytes = {card.data(), card.size()};
    Error error = checked(pmix_.put(pmix::kForAll, key_.c_str(), &value), "takes no card");
    return error ? error : checked(pmix_.commit(), "publishes no card");
  }

  Error meet(Duration within) {
    const auto fence = std::make_shared<Fence>();
    auto* const theirs = new std::shared_ptr<Fence>(fence);
    const auto done = [](pmix::Status status, void* context) {
      const std::unique_ptr<std::shared_ptr<Fence>> mine(static_cast<std::shared_ptr<Fence>*>(context));
      (*mine)->status.store(status);
      (*mine)->ended.store(1);
      futex_wake((*mine)->ended, 1);
    };
    pmix::Info collect = info(pmix::kCollectData, pmix::kBool);
    collect.value.data.flag = true;
    const pmix::Status status = pmix_.fence(nullptr, 0, &collect, 1, done, theirs);
    if (status != pmix::kSuccess) delete theirs;
    if (status == pmix::kAlreadyDone) return {};
    if (Error error = checked(status, "begins no fence")) return error;
    const Time end = monotonic_now() + within;
    while (fence->ended.load() == 0) {
      if (monotonic_now() >= end) {
        meets_ = false;
        return Error::make(ETIMEDOUT, "not all %u processes of the job came to the PMIx fence within %lld ms",
                           own_.peers, static_cast<long long>(within / kMillisecond));
      }
      futex_wait(fence->ended, 0, end);
    }
    return checked(fence->status.load(), "ends the fence");
  }

  Error read(Peer rank, Card& card) const {
    const pmix::Proc from = process(rank);
    pmix::Info limit = info(pmix::kTimeout, pmix::kInt);
    limit.value.data.integer = kSecondsForOne;
    pmix::Value* value = nullptr;
    if (Error error =
            checked(pmix_.get(&from, key_.c_str(), &limit, 1, &value), "gives no card of a process"))
      return error;
    Error error = Error::make(EBADMSG, "process %u published no card by PMIx", rank);
    if (value->type == pmix::kByteObject) {
      const pmix::ByteObject& bytes = value->data.bytes;
      if (bytes.size <= kMostCard) error = card_from_bytes(std::string(bytes.bytes, bytes.size), card);
      std::free(bytes.bytes);
    }
    std::free(value);
    return error ? error : check_card(card, rank, own_.peers);
  }

  pmix::Proc process(std::uint32_t rank) const {
    pmix::Proc process = self_;
    process.rank = rank;
    return process;
  }

  const PmixLibrary& pmix_;
  const Card& own_;
  std::string key_;
  pmix::Proc self_{};
  bool meets_ = true;
};

}  // namespace

Error exchange_by_pmix(const Card& own, Duration within, std::vector<Card>& cards) {
  Error error;
  const PmixLibrary* const pmix = load_once<PmixLibrary, load>(error);
  if (pmix == nullptr) return error;
  Exchange exchange(*pmix, own);
  error = exchange.begin();
  if (error) return error;
  error = exchange.run(within, cards);
  exchange.end();
  return error;
}

}  // namespace pinion::transfer
