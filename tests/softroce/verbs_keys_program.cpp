// Shows what the device still does by keys that the program has ended: `verbs_keys_program few|all|beside`
// prints a line for each kind of rights, way of ending and use of the key. verbs_front_test compares the
// lines with those of a run without Pinion. few: re-registrations by local keys alone. beside: like few, and
// a cache (uct_stand_in.c) keeps the same memory registered meanwhile.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "queue_pair.h"

namespace {

using pinion::LoopedQueuePair;

constexpr std::uint32_t kBytes = 8192;
constexpr int kWrite = IBV_ACCESS_LOCAL_WRITE;

void need(bool condition, const char* what) {
  if (condition) return;
  std::printf("failed: %s (errno %d)\n", what, errno);
  std::_Exit(1);
}

char* map(char value) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(memory != MAP_FAILED, "memory");
  std::memset(memory, value, kBytes);
  return static_cast<char*>(memory);
}

struct Rights {
  const char* name;
  int access;
};
constexpr Rights kRights[] = {{"read", 0},
                              {"write", kWrite},
                              {"peers read", IBV_ACCESS_REMOTE_READ},
                              {"peers write", kWrite | IBV_ACCESS_REMOTE_WRITE},
                              {"peers add", kWrite | IBV_ACCESS_REMOTE_ATOMIC},
                              {"relaxed", kWrite | IBV_ACCESS_RELAXED_ORDERING}};

struct Ending {
  const char* name;
  int changes;  ///< of a re-registration; 0: deregistration
  bool frees_domain = false;
};
constexpr Ending kEndings[] = {{"deregister", 0},
                               {"deregister and free the domain", 0, true},
                               {"move", IBV_REREG_MR_CHANGE_TRANSLATION},
                               {"change the domain", IBV_REREG_MR_CHANGE_PD},
                               {"change rights", IBV_REREG_MR_CHANGE_ACCESS}};

enum class Use { receive, send, write, read, add };
constexpr const char* kUses[] = {"posted receive", "posted send", "peer's write", "peer's read",
                                 "peer's add"};

/// Registers and deregisters the memory as a cache, which keeps it.
void keep_by_cache(ibv_pd* pd, void* memory) {
  char path[4096] = {};
  need(readlink("/proc/self/exe", path, sizeof path - 1) > 0, "own path");
  const std::string self = path;
  void* const library = dlopen((self.substr(0, self.rfind('/')) + "/libuct_stand_in.so").c_str(), RTLD_NOW);
  need(library != nullptr, "stand-in");
  const auto add =
      reinterpret_cast<ibv_mr* (*)(ibv_pd*, void*, std::size_t, int)>(dlsym(library, "stand_in_register"));
  const auto end = reinterpret_cast<int (*)(ibv_mr*)>(dlsym(library, "stand_in_deregister"));
  ibv_mr* const mr = add(pd, memory, kBytes, kWrite | IBV_ACCESS_REMOTE_WRITE);
  need(mr != nullptr && end(mr) == 0, "the cache's registration");
}

/// One registration that ends, in a queue pair of its own.
class Case {
 public:
  Case(int access, bool beside_cache) {
    if (beside_cache) keep_by_cache(pair_.pd(), memory_);
    kept_ = need_region(ibv_reg_mr(pair_.pd(), local_, kBytes, kWrite));
    ended_ = need_region(ibv_reg_mr(pair_.pd(), memory_, kBytes, access));
    lkey_ = ended_->lkey;
    rkey_ = ended_->rkey;
  }
  ~Case() {
    if (ended_ != nullptr) ibv_dereg_mr(ended_);
    ibv_dereg_mr(kept_);
    munmap(local_, kBytes);
    munmap(memory_, kBytes);
    munmap(elsewhere_, kBytes);
    if (other_ != nullptr) ibv_dealloc_pd(other_);
  }

  void post(Use use) {
    if (use == Use::receive) need(pair_.post_receive(memory_, lkey_, kBytes), "receive");
    if (use == Use::send) need(pair_.post_send(memory_, lkey_, kBytes), "send");  // waits for a receive
  }
  /// The result of the call. The device of the virtual machine has no re-registration of its own.
  int end(const Ending& ending) {
    if (ending.changes != 0) {
      other_ = ibv_alloc_pd(pair_.pd()->context);
      const int access = (ending.changes & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? kWrite : 0;
      return ibv_rereg_mr(ended_, ending.changes, other_, elsewhere_, kBytes, access);
    }
    const int result = ibv_dereg_mr(ended_);
    ended_ = nullptr;
    return ending.frees_domain ? ibv_dealloc_pd(pair_.pd()) : result;
  }
  bool works(Use use) {
    switch (use) {
      case Use::receive:
        need(pair_.post_send(local_, kept_->lkey, kBytes), "send");
        return pair_.message_arrives();
      case Use::send:
        need(pair_.post_receive(local_, kept_->lkey, kBytes), "receive");
        return pair_.message_arrives();
      case Use::write:
        return transfer(IBV_WR_RDMA_WRITE, kBytes);
      case Use::read:
        return transfer(IBV_WR_RDMA_READ, kBytes);
      case Use::add:
        return transfer(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    }
    return false;
  }
  bool is_changed() const {
    for (std::uint32_t i = 0; i < kBytes; ++i)
      if (memory_[i] != 'o') return true;
    return false;
  }
  /// Other bytes than its own came out.
  bool is_told() const { return std::memchr(local_, 'o', kBytes) != nullptr; }

 private:
  static ibv_mr* need_region(ibv_mr* mr) {
    need(mr != nullptr, "registration");
    return mr;
  }
  bool transfer(ibv_wr_opcode operation, std::uint32_t bytes) {
    return pair_.transfer(operation, local_, kept_->lkey, memory_, rkey_, bytes) == IBV_WC_SUCCESS;
  }

  LoopedQueuePair pair_;
  char* const local_ = map('l');
  char* const memory_ = map('o');
  char* const elsewhere_ = map('e');
  ibv_mr* kept_ = nullptr;
  ibv_mr* ended_ = nullptr;
  ibv_pd* other_ = nullptr;
  std::uint32_t lkey_ = 0, rkey_ = 0;
};

}  // namespace

int main(int, char** arguments) {
  const std::string mode = arguments[1];
  const auto is_asked = [&](const Rights& rights, const Ending& ending, Use use) {
    return mode == "all" || (ending.changes == 0 && !ending.frees_domain) ||
           (rights.access == kWrite && (use == Use::receive || use == Use::send));
  };
  for (const Rights& rights : kRights)
    for (const Ending& ending : kEndings)
      for (const Use use : {Use::receive, Use::send, Use::write, Use::read, Use::add}) {
        if (!is_asked(rights, ending, use)) continue;
        Case one(rights.access, mode == "beside");
        one.post(use);
        const int result = one.end(ending);
        const bool works = one.works(use);
        std::printf("%s, %s (%s), %s: %s%s%s\n", rights.name, ending.name, result == 0 ? "done" : "refused",
                    kUses[static_cast<int>(use)], works ? "works" : "fails",
                    one.is_changed() ? ", memory changed" : "", one.is_told() ? ", bytes told" : "");
      }
  std::puts("done");
  return 0;
}
