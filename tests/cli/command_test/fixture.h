// Shared by the tests of the `pinion` command from outside. They need build/bin/pinion beside build/tests/;
// sanitizer builds have none.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/range.h"
#include "support/cli_fixture.h"

namespace pinion::command_test {

namespace fs = std::filesystem;
using nlohmann::json;

using test::Cli;
using test::content_of;
using test::Outcome;

/// From here on this process, a child, may lock 64 KiB of memory, and raise that to 4 MiB. Root stays root,
/// but for the limit.
inline void limit_locked_memory() {
  if (::geteuid() == 0) {
    ASSERT_EQ(::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK), 0);
  }
  const rlimit limit{64 << 10, 4 << 20};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

}  // namespace pinion::command_test
