// `pinion info` and `pinion doctor`: what there is, and what will act.

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "fixture.h"

namespace pinion::command_test {
namespace {

TEST_F(Cli, InfoKnowsEveryOptionDeviceAndStrategy) {
  const Outcome o = pinion({"info"});
  EXPECT_EQ(o.status, 0);
  for (const char* text : {"time-budget", "node-limit", "emulated", "connectx", "leave-pinned", "Predictors"})
    EXPECT_NE(o.out.find(text), std::string::npos) << text;
  const std::string everyday = pinion({"info", "options"}).out,
                    all = pinion({"info", "options", "--all"}).out;
  EXPECT_EQ(everyday.find("Strategies"), std::string::npos);
  EXPECT_NE(everyday.find("more: pinion info options --all"), std::string::npos) << everyday;
  EXPECT_EQ(all.find("more: "), std::string::npos);
  EXPECT_EQ(all.find("Strategies"), std::string::npos);
  for (const char* name : {"  limit ", "  retention ", "  monitor "}) {
    EXPECT_NE(everyday.find(name), std::string::npos) << name;
    EXPECT_NE(all.find(name), std::string::npos) << name;
  }
  const std::string help = pinion({"run", "--help"}).out;
  EXPECT_NE(help.find("--limit "), std::string::npos) << help;
  EXPECT_NE(help.find("--tune "), std::string::npos) << help;
  for (const char* name : {"predictor", "policy", "window", "log-size", "poll"}) {
    EXPECT_EQ(everyday.find(std::string("  ") + name + " "), std::string::npos) << name;
    EXPECT_EQ(help.find(std::string("--") + name + " "), std::string::npos) << name;
    EXPECT_NE(all.find(std::string("  ") + name + " "), std::string::npos) << name;
  }
}

TEST_F(Cli, InfoHasTheOptionsInForce) {
  std::ofstream(root() / "ours.conf") << "limit=1G\nthreshold=8K\n";
  ::setenv("PINION_CONFIG", "ours.conf", 1);
  ::setenv("PINION", "limit=2G", 1);
  const Outcome o = pinion({"info", "options", "--all"});
  EXPECT_EQ(o.status, 0) << o.err;
  for (const char* text : {"size    2G, from PINION (default: 0)\n",
                           "size    8K, from ours.conf (default: 16K)\n", "share   1%, the default\n"})
    EXPECT_NE(o.out.find(text), std::string::npos) << text << "\n" << o.out;
  ::setenv("PINION", "limit=2X", 1);
  expect_usage_error({"info", "options"}, "option limit: '2X'");
}

TEST_F(Cli, InfoKnowsNics) {
  ::setenv("PINION_TEST_INFINIBAND", (root() / "infiniband").c_str(), 1);
  fs::create_directories(root() / "infiniband/mlx5_0/ports/1");
  std::ofstream(root() / "infiniband/mlx5_0/ports/1/state") << "4: ACTIVE\n";
  const Outcome o = pinion({"info", "nics"});
  ::unsetenv("PINION_TEST_INFINIBAND");
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("  mlx5_0 port 1: ACTIVE\n"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("  connectx  "), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("registers 64 KiB in 19.9 us, 1 MiB in 79.0 us"), std::string::npos) << o.out;
  expect_narrow(pinion({"info"}).out);
}

TEST_F(Cli, InfoNamesAProviderThatHangs) {
  const std::string out = pinion({"info", "devices"}).out;
  const std::size_t hanging = out.find("\n  udp;ofi_rxd\n");
  if (hanging == std::string::npos) GTEST_SKIP() << "libfabric has no ofi_rxd here";
  const std::size_t said = out.find("; hangs under", hanging);
  ASSERT_NE(said, std::string::npos) << out;
  EXPECT_LT(said, out.find("registration: ", hanging));
  EXPECT_EQ(out.find("; hangs under", said + 1), std::string::npos) << out;
}

TEST_F(Cli, DoctorSaysWhatWillAct) {
  const auto acts = [&](const char* state) {
    ::setenv("PINION_TEST_INFINIBAND", (root() / "infiniband").c_str(), 1);
    if (state) {
      fs::create_directories(root() / "infiniband/hfi1_0/ports/1");
      std::ofstream(root() / "infiniband/hfi1_0/ports/1/state") << state << "\n";
    }
    const Outcome o = pinion({"doctor", "--json"});
    ::unsetenv("PINION_TEST_INFINIBAND");
    std::map<std::string, std::string> texts;
    const json found = json::parse(o.out);
    for (const json& check : found.at("checks")) texts[check.at("name")] = check.at("text");
    return texts;
  };
  constexpr const char* kMeasured =
      "measured only: no NIC registers here; your MPI's own registrations are unchanged";
  EXPECT_EQ(acts(nullptr)["acts"],
            std::string(kMeasured) + ". This node has no RDMA device (/sys/class/infiniband)");
  EXPECT_EQ(acts("1: DOWN")["acts"], std::string(kMeasured) + ". No RDMA port is active: hfi1_0 port 1 DOWN");
  auto active = acts("4: ACTIVE");
  EXPECT_NE(active["acts"].find("hfi1_0 port 1 ACTIVE"), std::string::npos) << active["acts"];
  EXPECT_NE(active["interconnect Omni-Path"].find("cache_size"), std::string::npos);
}

/// A program's file: a header, an interpreter where it asks for one, and one symbol that it defines.
void write_program(const fs::path& file, bool interpreter, const char* symbol) {
  struct {
    ElfW(Ehdr) header{};
    ElfW(Phdr) segment{};
    ElfW(Shdr) sections[2]{};
    ElfW(Sym) symbols[2]{};
    char names[32]{};
  } program;
  using Program = decltype(program);
  std::memcpy(program.header.e_ident, ELFMAG, SELFMAG);
  program.header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  program.header.e_type = ET_EXEC;
  program.header.e_phoff = offsetof(Program, segment);
  program.header.e_phentsize = sizeof program.segment;
  program.header.e_phnum = 1;
  program.segment.p_type = interpreter ? PT_INTERP : PT_NULL;
  program.header.e_shoff = offsetof(Program, sections);
  program.header.e_shnum = 2;
  program.sections[0].sh_type = SHT_SYMTAB;
  program.sections[0].sh_offset = offsetof(Program, symbols);
  program.sections[0].sh_size = sizeof program.symbols;
  program.sections[0].sh_link = 1;
  program.sections[1].sh_type = SHT_STRTAB;
  program.sections[1].sh_offset = offsetof(Program, names);
  program.symbols[1].st_name = 1;
  program.symbols[1].st_shndx = 1;
  std::strncpy(program.names + 1, symbol, sizeof program.names - 2);
  std::ofstream(file).write(reinterpret_cast<const char*>(&program), sizeof program);
  fs::permissions(file, fs::perms::owner_all);
}

TEST_F(Cli, RunAndDoctorNameProgramsThatThePreloadDoesNotReach) {
  install_harmless_preload();
  write_program(root() / "static", false, "main");
  write_program(root() / "bundled", true, "ibv_cmd_reg_mr");
  write_program(root() / "plain", true, "main");
  const auto said = [&](const char* name) { return pinion({"run", "--", "./" + std::string(name)}).err; };
  EXPECT_NE(said("static").find("./static: it is linked statically"), std::string::npos);
  EXPECT_NE(said("bundled").find("./bundled: it has a libibverbs of its own inside"), std::string::npos);
  EXPECT_EQ(said("plain").find("./plain: it"), std::string::npos);
  // A launcher's word.
  EXPECT_NE(pinion({"run", "--", "nice", "./static"}).err.find("./static: it"), std::string::npos);
  EXPECT_EQ(pinion({"run", "--", "true", "static"}).err.find("static: it"), std::string::npos);

  const auto findings = [&](const char* name) {
    const json found = json::parse(pinion({"doctor", "--json", "./" + std::string(name)}).out);
    for (const json& check : found.at("checks"))
      if (check.at("name") == "preload") return check.at("status").get<std::string>();
    return std::string();
  };
  EXPECT_EQ(findings("bundled"), "warn");
  EXPECT_EQ(findings("plain"), "ok");
}

// A sparse file of 20 GiB takes no room, and a minute to read.
TEST_F(Cli, DoctorReadsProgramsAlone) {
  ASSERT_EQ(::mkfifo((root() / "fifo").c_str(), 0600), 0);
  std::ofstream(root() / "sparse").put(0);
  fs::resize_file(root() / "sparse", std::uintmax_t{20} << 30);
  for (const char* path : {"fifo", ".", "/dev/zero"})
    expect_usage_error({"doctor", path}, "not a regular file");
  expect_usage_error({"doctor", "sparse"}, "no program or library of this machine");

  write_program(root() / "huge", true, "main");
  ElfW(Phdr) segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_X;
  segment.p_filesz = std::uint64_t{20} << 30;
  std::fstream(root() / "huge", std::ios::in | std::ios::out)
      .seekp(sizeof(ElfW(Ehdr)))
      .write(reinterpret_cast<const char*>(&segment), sizeof segment);
  fs::resize_file(root() / "huge", std::uintmax_t{20} << 30);
  expect_usage_error({"doctor", "./huge"}, "more than 1 GiB of code");
}

TEST_F(Cli, RunNamesProgramsWithPrivileges) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  install_harmless_preload();
  const fs::path file = root() / "privileged";
  fs::copy_file("/bin/true", file);
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(file.c_str(), 04755), 0);
  const Outcome o = pinion({"run", "--", "./privileged"});
  EXPECT_NE(o.err.find("./privileged: it is set-user-ID"), std::string::npos) << o.err;
  // Where a script starts it, also as the reason that there is no log.
  std::ofstream(root() / "job") << "#!/bin/sh\n# ./unused\nexec env A=1 ./privileged\n";
  ASSERT_EQ(::chmod((root() / "job").c_str(), 0755), 0);
  const Outcome by_script = pinion({"run", "--", "./job"});
  EXPECT_NE(by_script.err.find("./privileged: it is set-user-ID"), std::string::npos) << by_script.err;
  EXPECT_NE(by_script.err.find("left a log: ./privileged: it is set-user-ID"), std::string::npos)
      << by_script.err;
  EXPECT_EQ(by_script.err.find("did the program use MPI"), std::string::npos) << by_script.err;
}

// Without its preload library Pinion starts no program: nothing gains more than that.
TEST_F(Cli, DoctorBeginsWithTheLargestGain) {
  ::setenv("UCX_MEM_EVENTS", "y", 1);
  const Outcome o = pinion({"doctor"});
  ::unsetenv("UCX_MEM_EVENTS");
  const auto found = [&](const char* text) {
    EXPECT_NE(o.out.find(text), std::string::npos) << text << "\n" << o.out;
    return o.out.find(text);
  };
  EXPECT_LT(found("warn  preload library: "), found("warn  competing cache: "));
  EXPECT_LT(found("warn  competing cache: "), found("ok    "));
  found("      effect: `pinion run` starts no program\n      user: install the whole package\n");
  expect_narrow(o.out);
}

TEST_F(Cli, DoctorChecksAndCures) {
  ::setenv("UCX_MEM_EVENTS", "y", 1);
  const Outcome o = pinion({"doctor", "--json"});
  ::unsetenv("UCX_MEM_EVENTS");
  ASSERT_EQ(o.status, 0) << o.err;
  bool competing = false, problems_go_on = true;
  std::string last;
  const json checked = json::parse(o.out);
  for (const json& check : checked.at("checks")) {
    const bool warns = check.at("status") == "warn";
    EXPECT_TRUE(warns || check.at("status") == "ok");
    EXPECT_EQ(warns, check.at("cure") != "");
    EXPECT_NE(check.at("text"), "");
    EXPECT_EQ(warns, check.contains("effect"));
    if (warns) {
      EXPECT_TRUE(check.at("by") == "user" || check.at("by") == "admin") << check;
      EXPECT_TRUE(problems_go_on) << "a problem after " << last << ": " << check;
    }
    problems_go_on = warns;
    last = check.at("name");
    competing |= check.at("name") == "competing cache" && warns;
  }
  EXPECT_TRUE(competing);
  const auto events = std::find_if(checked.at("checks").begin(), checked.at("checks").end(),
                                   [](const json& check) { return check.at("name") == "memory events"; });
  ASSERT_NE(events, checked.at("checks").end());
  for (const char* text : {"munmap by syscall()", "mprotect that takes rights", "never seen: "})
    EXPECT_NE(events->at("text").get<std::string>().find(text), std::string::npos) << text;
}

}  // namespace
}  // namespace pinion::command_test
