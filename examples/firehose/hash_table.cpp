// A hash table over all heaps, open addressing within a process. A key belongs to the process and the slot
// of its hash: a compare-swap of the key's word takes a slot, a put writes the value.
#include <algorithm>

#include "clients.h"

namespace gas {

namespace {

using Word = std::uint64_t;

struct Slot {
  Word key;  ///< 0: free
  Word value;
};

class HashTable {
 public:
  /// `slots` in each process, and a counter in the first one's heap.
  HashTable(Job& job, std::size_t slots) : job_(job), slots_(slots) {}
  static std::size_t heap_bytes(std::size_t slots) { return slots * sizeof(Slot) + sizeof(Word); }

  void insert(Word key, Word value) {
    const unsigned owner = owner_of(key);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) % slots_) {
      const Word old = job_.compare_swap(owner, slot * sizeof(Slot), 0, key);
      if (old != 0 && old != key) continue;
      job_.put(owner, slot * sizeof(Slot) + sizeof(Word), &value, sizeof value);
      job_.fence();
      if (old == 0) job_.add(0, slots_ * sizeof(Slot), 1);
      return;
    }
  }
  /// 0: absent.
  Word find(Word key) {
    const unsigned owner = owner_of(key);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) % slots_) {
      Slot seen{};
      job_.get(owner, slot * sizeof(Slot), &seen, sizeof seen);
      if (seen.key == key) return seen.value;
      if (seen.key == 0) return 0;
    }
  }
  Word size() {
    Word size = 0;
    job_.get(0, slots_ * sizeof(Slot), &size, sizeof size);
    return size;
  }
  std::size_t taken_here() const {
    const Slot* const slots = job_.at<Slot>(0);
    return static_cast<std::size_t>(
        std::count_if(slots, slots + slots_, [](const Slot& slot) { return slot.key != 0; }));
  }

 private:
  unsigned owner_of(Word key) const { return static_cast<unsigned>(pattern_word(3, key) % job_.processes()); }
  std::size_t slot_of(Word key) const { return pattern_word(4, key) % slots_; }

  Job& job_;
  const std::size_t slots_;
};

/// Keys are odd, so none is 0. The upper half of a process's keys is common to all.
Word key_of(unsigned process, std::size_t i, std::size_t keys) {
  return pattern_word(i < keys / 2 ? process + 1 : 0, i) | 1;
}
Word value_of(Word key) { return pattern_word(5, key) | 1; }

}  // namespace

bool hash_table(Job& job, const HashTableOptions& options) {
  const unsigned n = job.processes();
  const std::size_t keys = options.keys;
  const std::size_t slots = 2 * keys + 64;  // half empty
  job.open(HashTable::heap_bytes(slots));
  HashTable table(job, slots);
  job.begin();
  for (std::size_t i = 0; i < keys; ++i) {
    const Word key = key_of(job.self(), i, keys);
    table.insert(key, value_of(key));
  }
  job.barrier();
  bool right = true;
  for (std::size_t i = 0; i < keys; ++i) {
    const Word key = key_of((job.self() + 1) % n, i, keys);
    if (table.find(key) != value_of(key)) right = false;
    const Word absent = key_of(n + job.self(), i, 2 * keys);
    if (table.find(absent) != 0) right = false;
  }
  job.end();
  const std::size_t distinct = n * (keys / 2) + (keys - keys / 2);
  std::size_t taken = 0;
  for (const std::size_t theirs : job.gather(table.taken_here())) taken += theirs;
  return job.everywhere(right && taken == distinct && table.size() == distinct);
}

}  // namespace gas
