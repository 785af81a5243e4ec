// The definition that a caller's object would have bound to, among two copies of a library and a wrapper,
// loaded in every order, each for its user alone; and beside a storm of libraries that come and go.
#include "intercept/scopes.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/loaded_objects.h"
#include "intercept/definitions.h"

namespace pinion {
namespace {

constexpr const char* kProbe = "scope_probe";

class Library {
 public:
  explicit Library(const std::string& name, int flags = RTLD_LOCAL)
      : handle_(::dlopen((PINION_TEST_SCOPES "/lib" + name + ".so").c_str(), RTLD_NOW | flags)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  /// An address in the library itself.
  const void* here() const { return ::dlsym(handle_, "scope_here"); }
  /// The copy that the dynamic linker itself bound the library to; 0: none. A library that was linked without
  /// a copy asks for no version, and gets the old one.
  int bound() const { return std::abs(reinterpret_cast<int (*)()>(::dlsym(handle_, "scope_bound"))()); }

 private:
  void* handle_;
};

/// Calls what code at the address would have called; 0: nothing.
int found_for(const void* caller) {
  void* const found = definition_for(caller, kProbe);
  return found == nullptr ? 0 : reinterpret_cast<int (*)()>(found)();
}

class ScopesTest : public testing::Test {
 protected:
  /// Marks the end of the start, as visible_names.cpp does.
  ScopesTest() {
    for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next)
      last_object_at_start = map->l_ld;
  }
};

TEST_F(ScopesTest, WithoutAnyDefinitionThereIsNone) {
  const Library plugin("plugin");
  EXPECT_EQ(found_for(plugin.here()), 0);
  EXPECT_EQ(found_for(nullptr), 0);
}

TEST_F(ScopesTest, TheOnlyDefinitionServesEveryCaller) {
  const Library plugin("plugin"), user("user2");
  EXPECT_EQ(found_for(plugin.here()), 2);
  EXPECT_EQ(found_for(nullptr), 2);
}

TEST_F(ScopesTest, EachMeetsWhatTheDynamicLinkerBindsItToInEveryOrderOfLoading) {
  std::vector<std::string> order{"copy2", "part1", "user1", "user2", "whole1", "whole2"};
  do {
    std::vector<Library> loaded;
    for (const std::string& name : order) loaded.emplace_back(name);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int bound = loaded[i].bound();
      if (bound != 0) {
        EXPECT_EQ(found_for(loaded[i].here()), bound) << order[i] << testing::PrintToString(order);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(ScopesTest, APartMeetsTheCopyOfTheLibraryThatBroughtIt) {
  const Library first("user1"), whole("whole2");
  const Library part("part2");  // loaded already
  EXPECT_EQ(part.bound(), 2);
  EXPECT_EQ(found_for(part.here()), 2);
}

TEST_F(ScopesTest, WhatIsGlobalComesBeforeACallersOwn) {
  const Library global("user2", RTLD_GLOBAL);
  const Library first("user1");
  EXPECT_EQ(first.bound(), 2);
  EXPECT_EQ(found_for(first.here()), 2);
}

TEST_F(ScopesTest, AWrapperMeetsWhatItWraps) {
  const Library first("user1"), wrapper("wrapper");
  EXPECT_EQ(wrapper.bound(), 3);
  EXPECT_EQ(found_for(wrapper.here()), 2);
}

TEST_F(ScopesTest, TheDefaultVersionIsMeant) {
  const Library copy("copy1");
  EXPECT_EQ(reinterpret_cast<int (*)()>(definition_beside(copy.here(), kProbe))(), 1);
}

TEST_F(ScopesTest, ManyNamesAreFoundAsEachIsAlone) {
  const Library first("user1"), second("user2"), wrapper("wrapper");
  constexpr const char* kNames[] = {"scope_here",  kProbe,   "no_such_function",
                                    "scope_bound", "munmap", kProbe};
  for (const Library* caller : {&first, &second, &wrapper}) {
    void* found[std::size(kNames)] = {&found};
    definitions_for(caller->here(), kNames, found);
    for (std::size_t i = 0; i < std::size(kNames); ++i)
      EXPECT_EQ(found[i], definition_for(caller->here(), kNames[i])) << kNames[i];
  }
}

TEST_F(ScopesTest, LeavesNoErrorForTheProgram) {
  const Library first("user1"), second("user2");
  static_cast<void>(::dlerror());
  found_for(nullptr);
  EXPECT_EQ(::dlerror(), nullptr);
}

TEST_F(ScopesTest, FindsTheCLibrarysOwnFunctions) {
  void* const libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  for (const char* const name : {"munmap", "mremap", "dlsym", "dlopen", "shmat", "fork"})
    EXPECT_EQ(c_library_function(name), ::dlsym(libc, name)) << name;
  EXPECT_EQ(c_library_function("no_such_function"), nullptr);
}

TEST_F(ScopesTest, AnswersBesideAStormOfLibraries) {
  const Library first("user1"), second("user2");
  const void* const callers[] = {first.here(), second.here()};
  std::atomic<bool> stop{false};
  std::vector<std::thread> storm;
  for (const char* const name : {"whole1", "whole2", "wrapper"})
    storm.emplace_back([name, &stop] {
      while (!stop) const Library library(name);
    });
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(found_for(callers[i % 2]), i % 2 + 1);
    ASSERT_TRUE(is_code(callers[i % 2]));
    ASSERT_NE(definition_beside(callers[i % 2], "scope_here"), nullptr);
    ASSERT_NE(c_library_function("munmap"), nullptr);
  }
  stop = true;
  for (std::thread& thread : storm) thread.join();
}

}  // namespace
}  // namespace pinion
