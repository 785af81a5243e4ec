#include "runlog/call_site_figures.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "base/call_kind.h"
#include "runlog/held_after.h"
#include "runlog/seconds.h"

namespace pinion::runlog {

namespace {

// Return addresses differ from rank to rank where modules are placed at random; names are equal.
std::string site_key(const SiteEntry* entry, std::uint64_t site) {
  if (entry && entry->name[0]) return entry->name;
  char text[32];
  std::snprintf(text, sizeof text, "site %016llx", static_cast<unsigned long long>(site));
  return site ? text : "unknown";
}

std::vector<SiteFrame> frames_of(const Log& log, const SiteEntry& site) {
  std::vector<SiteFrame> frames;
  for (std::uint32_t i = site.first_frame; i < site.frame_count; ++i) {
    const std::uint64_t address = site.frames[i] - 1;  // the call lies before the return address
    for (const ModuleEntry& module : log.modules)
      if (address >= module.begin && address < module.end)
        frames.push_back({module.path,
                          {reinterpret_cast<const char*>(module.build_id), module.build_id_bytes},
                          address - module.bias});
    if (frames.size() != i - site.first_frame + 1) break;  // further ones would be no callers of these
  }
  return frames;
}

}  // namespace

CallSite call_site_of(const Log& log, const SiteEntry& site) {
  CallSite found;
  found.name = site_key(&site, site.hash);
  found.frames = frames_of(log, site);
  found.python = site.python;
  return found;
}

void add_call_sites(CallSites& sites, const Log& log) {
  std::unordered_map<std::uint64_t, const SiteEntry*> names;
  for (const SiteEntry& site : log.sites) names.emplace(site.hash, &site);
  // Found by number first: building the name for every event would be most of the work.
  std::map<SiteCall, CallSite*> known;
  const auto site_of = [&](SiteCall key) {
    CallSite*& site = known[key];
    if (site) return site;
    const auto found = names.find(key.first);
    const SiteEntry* const entry = found == names.end() ? nullptr : found->second;
    const std::string name = site_key(entry, key.first);
    site = &sites[{name, key.second}];
    site->name = name;
    if (entry) {
      site->frames = frames_of(log, *entry);
      site->python = entry->python;
    }
    site->call = to_string(static_cast<CallKind>(key.second));
    return site;
  };
  for (const Event& e : log.events) {
    const std::uint64_t uses = uses_of(e);
    if (uses == 0) continue;
    CallSite* const site = site_of({e.site, e.call});
    site->acquires += uses;
    site->bytes += uses * e.bytes;
    site->hits += e.outcome == Outcome::hit ? uses : 0;
    site->waits += e.outcome == Outcome::wait ? uses : 0;
    site->misses += e.outcome == Outcome::miss ? uses : 0;
    site->bounced += e.outcome == Outcome::bounced ? uses : 0;
    site->late += e.flags & kLate ? uses : 0;
    if (e.kind == EventKind::lease) site->wait_seconds += seconds(e.wait_ns);
  }
  for (const auto& [key, byte_ns] : held_after(log)) site_of(key)->held_byte_seconds += seconds(byte_ns);
}

std::vector<CallSite> list_of(const CallSites& sites) {
  std::vector<CallSite> list;
  for (const auto& [key, site] : sites) list.push_back(site);
  std::stable_sort(list.begin(), list.end(), [](const CallSite& a, const CallSite& b) {
    return a.wait_seconds != b.wait_seconds ? a.wait_seconds > b.wait_seconds : a.bytes > b.bytes;
  });
  return list;
}

CallSite& CallSite::operator+=(const CallSite& other) {
  name = other.name;
  call = other.call;
  if (frames.empty()) frames = other.frames;
  if (python.empty()) python = other.python;
  acquires += other.acquires;
  bytes += other.bytes;
  hits += other.hits;
  waits += other.waits;
  misses += other.misses;
  late += other.late;
  bounced += other.bounced;
  wait_seconds += other.wait_seconds;
  held_byte_seconds += other.held_byte_seconds;
  return *this;
}

}  // namespace pinion::runlog
