#include "callsite/call_site.h"

#include <bit>
#include <cstring>

// The words read here are those of live frames: return addresses and saved registers, which only
// this thread touches. Sanitizers miss the writes of these words, so they are kept out.
#define PINION_READS_STACK __attribute__((no_sanitize("address"), no_sanitize("thread")))

namespace pinion {

namespace {

constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

CallSite hash_of(const CallFrames& frames) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < frames.depth; ++i) {
    hash = (std::rotl(hash, 29) ^ frames.return_addresses[i]) * kMix;
    hash ^= hash >> 32;
  }
  return hash != 0 ? hash : 1;
}

std::atomic<std::uint32_t> generation_of_code{0};

/// The frames behind each hash: open addressing, claimed by its first writer, readable once `depth` is set.
struct NamedSite {
  std::atomic<CallSite> site;
  std::atomic<std::size_t> depth;
  Address return_addresses[kMaxCallFrames];
  char python[kPythonPlaceBytes];
};
constexpr std::size_t kMaxProbes = 64;
// A megabyte, of which each process touches what it uses: its initial value is a constant.
constinit NamedSite named_sites[kMaxNamedCallSites]{};
std::atomic<std::uint64_t> unnamed_sites{0};

NamedSite& named_site(CallSite site, std::size_t probe) {
  return named_sites[(site + probe) % kMaxNamedCallSites];
}

void name(CallSite site, const CallFrames& frames) {
  for (std::size_t probe = 0; probe < kMaxProbes; ++probe) {
    NamedSite& entry = named_site(site, probe);
    CallSite holder = entry.site.load(std::memory_order_relaxed);
    if (holder == 0 && entry.site.compare_exchange_strong(holder, site, std::memory_order_relaxed)) {
      std::memcpy(entry.return_addresses, frames.return_addresses, sizeof entry.return_addresses);
      python_place(entry.python);
      entry.depth.store(frames.depth, std::memory_order_release);
      return;
    }
    if (holder == site) return;
  }
  unnamed_sites.fetch_add(1, std::memory_order_relaxed);
}

/// The entry of a site, complete, and its depth; null where it is unknown.
const NamedSite* find_named(CallSite site, std::size_t& depth) {
  for (std::size_t probe = 0; probe < kMaxProbes; ++probe) {
    const NamedSite& entry = named_site(site, probe);
    const CallSite holder = entry.site.load(std::memory_order_relaxed);
    if (holder == 0) return nullptr;
    if (holder != site) continue;
    depth = entry.depth.load(std::memory_order_acquire);
    return depth != 0 ? &entry : nullptr;  // 0: being written
  }
  return nullptr;
}

}  // namespace

void invalidate_call_sites() { generation_of_code.fetch_add(1, std::memory_order_relaxed); }

std::uint32_t code_generation() { return generation_of_code.load(std::memory_order_relaxed); }

bool call_site_frames(CallSite site, CallFrames& frames) {
  const NamedSite* const entry = find_named(site, frames.depth);
  if (entry == nullptr) return false;
  std::memcpy(frames.return_addresses, entry->return_addresses, sizeof frames.return_addresses);
  return true;
}

void python_of(CallSite site, char (&text)[kPythonPlaceBytes]) {
  std::size_t depth = 0;
  const NamedSite* const entry = find_named(site, depth);
  text[0] = '\0';
  if (entry != nullptr) std::memcpy(text, entry->python, sizeof text);
}

std::uint64_t unnamed_call_sites() { return unnamed_sites.load(std::memory_order_relaxed); }

#if defined(__x86_64__)

/// One walk up a stack, which notes all that it depends on in a template.
class CallSiteCache::Unwinding {
 public:
  Unwinding(const EntryFrame& entry, Template& made) : entry_(entry), made_(made) {
    made_.frame_pointer_mask = 0;
    made_.frame_pointer = entry.frame_pointer;
    made_.word_count = 0;
  }

  /// `rule_at` maps a return address to its FrameRule.
  template <class RuleAt>
  CallFrames run(RuleAt rule_at) {
    CallFrames frames;
    Address return_address = entry_.return_address;
    frames.return_addresses[frames.depth++] = return_address;
    while (frames.depth < kMaxCallFrames && step(rule_at(return_address), return_address) &&
           return_address != 0) {
      frames.return_addresses[frames.depth++] = return_address;
    }
    made_.site = hash_of(frames);
    return frames;
  }

 private:
  /// Steps to the caller's frame; false at the end of the stack.
  bool step(const FrameRule& rule, Address& return_address) {
    Address cfa = 0;
    switch (rule.cfa) {
      case FrameRule::Cfa::none:
        return false;
      case FrameRule::Cfa::stack_pointer:
        cfa = stack_pointer_ + rule.cfa_offset;
        break;
      case FrameRule::Cfa::frame_pointer:
        if (!find_frame_pointer()) return false;
        cfa = frame_pointer_ + rule.cfa_offset;
        break;
      case FrameRule::Cfa::stored_at_frame_pointer:
        if (!find_frame_pointer() || !read(frame_pointer_ + rule.cfa_offset, cfa)) return false;
        break;
    }
    // Callers lie higher on the stack. Any other address is rejected, even if the tables describe a frame
    // there.
    if (cfa <= stack_pointer_ || !read(cfa - sizeof(Address), return_address)) return false;
    stack_pointer_ = cfa;
    switch (rule.frame_pointer) {
      case FrameRule::FramePointer::unchanged:
        return true;
      case FrameRule::FramePointer::stored_at_cfa:
        keep_frame_pointer_in(cfa + rule.frame_pointer_offset);
        return true;
      case FrameRule::FramePointer::stored_at_frame_pointer:
        if (!find_frame_pointer()) return false;
        keep_frame_pointer_in(frame_pointer_ + rule.frame_pointer_offset);
        return true;
      case FrameRule::FramePointer::lost:
        place_ = Place::lost;
        return true;
    }
    return false;
  }

  /// Finds the frame pointer's value in the current frame. Called once a frame depends on it: where frame
  /// pointers are omitted the register holds data, and equal stacks would look different.
  bool find_frame_pointer() {
    switch (place_) {
      case Place::entry_register:
        made_.frame_pointer_mask = ~Address{0};
        frame_pointer_ = entry_.frame_pointer;
        break;
      case Place::stack:
        if (!read(frame_pointer_at_, frame_pointer_)) return false;
        break;
      case Place::found:
        break;
      case Place::lost:
        return false;
    }
    place_ = Place::found;
    return true;
  }

  void keep_frame_pointer_in(Address slot) {
    frame_pointer_at_ = slot;
    place_ = Place::stack;
  }

  /// Reads a word of the stack and notes it; false for an address far from the stack, or between words.
  PINION_READS_STACK bool read(Address at, Address& word) {
    const Address offset = at - entry_.stack_pointer;
    if (offset > UINT32_MAX || at % sizeof(Address) != 0) return false;
    word = *reinterpret_cast<const Address*>(at);
    made_.offsets[made_.word_count] = static_cast<std::uint32_t>(offset);
    made_.words[made_.word_count++] = word;
    return true;
  }

  enum class Place : std::uint8_t { entry_register, stack, found, lost };

  const EntryFrame& entry_;
  Template& made_;
  Address stack_pointer_ = entry_.stack_pointer;
  Address frame_pointer_ = 0;     ///< valid when found
  Address frame_pointer_at_ = 0;  ///< its slot when on the stack
  Place place_ = Place::entry_register;
};

PINION_READS_STACK bool CallSiteCache::holds(const Template& known, const EntryFrame& entry) {
  if (((known.frame_pointer ^ entry.frame_pointer) & known.frame_pointer_mask) != 0) return false;
  for (std::uint32_t i = 0; i < known.word_count; ++i) {
    // Sound because of the order: the words before it have proved this address.
    if (*reinterpret_cast<const Address*>(entry.stack_pointer + known.offsets[i]) != known.words[i])
      return false;
  }
  return true;
}

CallSite CallSiteCache::find(const Set& set, const EntryFrame& entry) {
  for (std::size_t way = 0; way < kWays; ++way) {
    const Key& key = set.keys[way];
    if (key.return_address != entry.return_address || key.stack_pointer != entry.stack_pointer) continue;
    if (holds(set.templates[way], entry)) return set.templates[way].site;
  }
  return 0;
}

CallSite CallSiteCache::capture(const EntryFrame& entry) {
  if (busy_) [[unlikely]]
    return capture_alone(entry);
  busy_ = 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);

  const std::uint32_t generation = code_generation();
  if (generation != generation_) [[unlikely]]
    forget(generation);
  const std::uint64_t mixed = ((entry.return_address * kMix) ^ entry.stack_pointer) * kMix;
  Set& set = sets_[mixed >> (64 - kSetBits)];
  CallSite site = find(set, entry);
  if (site == 0) [[unlikely]]
    site = learn(entry, set);

  std::atomic_signal_fence(std::memory_order_seq_cst);
  busy_ = 0;
  return site;
}

CallSite CallSiteCache::capture_alone(const EntryFrame& entry) {
  Template unused;
  const CallFrames frames = Unwinding(entry, unused).run(find_frame_rule);
  name(unused.site, frames);
  return unused.site;
}

CallSite CallSiteCache::learn(const EntryFrame& entry, Set& set) {
  ++unwinds_;
  const std::uint32_t way = set.next_victim++ % kWays;
  Template& made = set.templates[way];
  const CallFrames frames = Unwinding(entry, made).run([this](Address address) { return rule_at(address); });
  set.keys[way] = {entry.return_address, entry.stack_pointer};
  name(made.site, frames);
  return made.site;
}

FrameRule CallSiteCache::rule_at(Address return_address) {
  KnownRule& known = rules_[(return_address * kMix) >> (64 - kRuleBits)];
  if (known.return_address != return_address) known = {return_address, find_frame_rule(return_address)};
  return known.rule;
}

void CallSiteCache::forget(std::uint32_t generation) {
  for (Set& set : sets_) {
    for (Key& key : set.keys) key = {};
  }
  for (KnownRule& known : rules_) known = {};
  generation_ = generation;
}

#else

CallSite CallSiteCache::capture(const EntryFrame& entry) {
  ++unwinds_;
  const CallFrames frames = unwind_with_runtime(entry);
  const CallSite site = hash_of(frames);
  name(site, frames);
  return site;
}

#endif

}  // namespace pinion
