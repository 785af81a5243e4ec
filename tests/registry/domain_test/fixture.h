// Shared by the tests of the registration cache: its steps, on one thread.
#pragma once

#include <gtest/gtest.h>

#include "support/registry_fixture.h"

namespace pinion::domain_test {

using test::pages;
using test::pages_bytes;
using test::RegistryTest;
using Step = AcquireStep;
using Released = RegionWord::Released;

constexpr Access kReadWrite = Access::read | Access::write;

}  // namespace pinion::domain_test
