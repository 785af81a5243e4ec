// Tests how long a key lives, over a made-up libibverbs, which lists its live regions. What a program
// deregisters is dead to the device, as posted receives and peers may hold its key, unless its caller keeps
// registrations itself. libuct_stand_in.so is such a caller; this program is a plain one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/range.h"
#include "made_up_verbs.h"
#include "process/engine.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

extern "C" ibv_mr* stand_in_register(ibv_pd* pd, void* memory, std::size_t bytes, int access);
extern "C" int stand_in_deregister(ibv_mr* mr);

namespace pinion {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;
constexpr int kWrite = IBV_ACCESS_LOCAL_WRITE;
/// Each kind of rights that the front may answer.
constexpr int kRights[] = {0,
                           kWrite,
                           IBV_ACCESS_REMOTE_READ,
                           kWrite | IBV_ACCESS_REMOTE_READ,
                           kWrite | IBV_ACCESS_REMOTE_WRITE,
                           kWrite | IBV_ACCESS_REMOTE_ATOMIC,
                           kWrite | IBV_ACCESS_RELAXED_ORDERING};
constexpr int kChanges[] = {IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_CHANGE_PD,
                            IBV_REREG_MR_CHANGE_ACCESS,
                            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS};

bool is_alive(std::uint32_t key) { return made_up_verbs::find(key).has_value(); }

struct Program {
  ibv_context* context = ibv_open_device(ibv_get_device_list(nullptr)[0]);
  ibv_pd* pd = ibv_alloc_pd(context);
  char* memory = static_cast<char*>(
      ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

  ibv_mr* add(int access) const {
    ibv_mr* const mr = (ibv_reg_mr)(pd, memory, kBytes, access);
    EXPECT_NE(mr, nullptr);
    EXPECT_TRUE(is_alive(mr->lkey));
    return mr;
  }
};

/// Calls `f(const Program&)` in a process of its own, whose engine has these options.
template <class F>
void under(const std::string& options, F&& f) {
  ::setenv("PINION", ("front=verbs,retention=leave-pinned" + options).c_str(), 1);
  SCOPED_TRACE(options);
  test::in_child([&] { f(Program()); });
}

TEST(VerbsKeys, OfAPlainCallerDieWithTheirRegistration) {
  for (const char* const options : {"", ",remote-keys=strict"})
    under(options, [](const Program& program) {
      for (const int rights : kRights) {
        ibv_mr* const mr = program.add(rights);
        const std::uint32_t key = mr->lkey;
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_FALSE(is_alive(key)) << "rights " << rights;
      }
      EXPECT_EQ(ibv_dealloc_pd(program.pd), 0);
    });
}

/// The old key dies where the new registration covers the old one, too.
void expect_reregistrations_end_keys(const Program& program) {
  ibv_pd* const other = ibv_alloc_pd(program.context);
  for (const int rights : kRights)
    for (const int changes : kChanges) {
      ibv_mr* const mr = program.add(rights);
      const std::uint32_t key = mr->lkey;
      const int access = (changes & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? kWrite | IBV_ACCESS_REMOTE_READ : 0;
      EXPECT_EQ(ibv_rereg_mr(mr, changes, other, program.memory + kBytes / 2, kBytes / 2, access), 0);
      EXPECT_FALSE(is_alive(key)) << "rights " << rights << ", changes " << changes;
      EXPECT_TRUE(is_alive(mr->lkey));
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST(VerbsKeys, DieWithAReregistrationWhoeverKeepsThem) {
  for (const char* const options : {"", ",remote-keys=strict", ",remote-keys=shared"})
    under(options, expect_reregistrations_end_keys);
}

TEST(VerbsKeys, OfACacheOutliveThem) {
  under("", [](const Program& program) {
    for (const int rights : kRights) {
      ibv_mr* const mr = stand_in_register(program.pd, program.memory, kBytes, rights);
      const std::uint32_t key = mr->lkey;
      EXPECT_EQ(stand_in_deregister(mr), 0);
      EXPECT_TRUE(is_alive(key)) << "rights " << rights;
    }
    EXPECT_EQ(ibv_dealloc_pd(program.pd), 0) << "they go first";
    EXPECT_EQ(made_up_verbs::held().regions, 0u);
  });
}

/// Whether the stand-in counts as a cache under this name. Nothing is kept until the helper has read the code
/// that was loaded, so a key may die a few times.
bool is_cache_as(const Program& program, const std::string& name, int most_tries) {
  const TemporaryDirectory directory;
  const std::string copy = directory.path() + "/" + name;
  std::filesystem::copy_file(PINION_TEST_CACHE, copy);
  void* const library = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  const auto add = reinterpret_cast<decltype(&stand_in_register)>(::dlsym(library, "stand_in_register"));
  for (int i = 0; i < most_tries; ++i) {
    ibv_mr* const mr = add(program.pd, program.memory, kBytes, kWrite);
    const std::uint32_t key = mr->lkey;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    if (is_alive(key)) return true;
    ::usleep(10'000);
  }
  return false;
}

TEST(VerbsKeys, ACacheIsKnownByTheNameOfItsFile) {
  under("", [](const Program& program) {
    for (const char* const name :
         {"libuct_ib.so.0", "libuct_ib-0a1b2c3d.so.0.0.0", "libfabric.so.1", "libfabric-0a1b2c3d.so.1.29.0",
          "libmpi.so.12", "libmpi-0a1b2c3d.so.40", "mca_btl_openib.so", "libverbs-1.12-fi.so"})
      EXPECT_TRUE(is_cache_as(program, name, 2'000)) << name;
    for (const char* const name :
         {"libfabricated.so.1", "libmpicalls.so", "librpma.so.0", "libibverbs_user.so"})
      EXPECT_FALSE(is_cache_as(program, name, 20)) << name;
  });
}

TEST(VerbsKeys, OfAPlainCallerBesideACacheAreItsOwn) {
  under("", [](const Program& program) {
    ibv_mr* const caches = stand_in_register(program.pd, program.memory, 2 * kBytes, kWrite);
    ibv_mr* const plain = program.add(kWrite);
    const std::uint32_t cached = caches->lkey, key = plain->lkey;
    EXPECT_NE(cached, key);
    EXPECT_EQ(ibv_dereg_mr(plain), 0);
    EXPECT_FALSE(is_alive(key));
    EXPECT_EQ(stand_in_deregister(caches), 0);
    ibv_mr* const again = program.add(kWrite);
    EXPECT_NE(again->lkey, cached) << "a plain caller gets no kept key";
    EXPECT_EQ(ibv_dereg_mr(again), 0);
  });
}

TEST(VerbsKeys, OfACacheDieTooWhereTheUserSaysSo) {
  under(",remote-keys=strict", [](const Program& program) {
    for (const int rights : kRights) {
      ibv_mr* const mr = stand_in_register(program.pd, program.memory, kBytes, rights);
      const std::uint32_t key = mr->lkey;
      EXPECT_EQ(stand_in_deregister(mr), 0);
      EXPECT_FALSE(is_alive(key)) << "rights " << rights;
    }
  });
}

}  // namespace
}  // namespace pinion
