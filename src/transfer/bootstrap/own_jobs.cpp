#include "transfer/bootstrap/own_jobs.h"

#include <pthread.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace pinion::transfer {

namespace {

struct Place {
  bool taken = false;
  std::vector<std::uint64_t> tokens;
};

struct Table {
  Mutex mutex;
  std::map<std::string, std::vector<Place>> places GUARDED_BY(mutex);  ///< by number
};

/// Never destroyed: jobs may close as the process ends.
Table& table() {
  static Table* const made = new Table;
  static std::once_flag once;  // a child must not find it locked
  std::call_once(once, [] {
    const auto unlock = []() NO_THREAD_SAFETY_ANALYSIS { made->mutex.unlock(); };
    ::pthread_atfork([]() NO_THREAD_SAFETY_ANALYSIS { made->mutex.lock(); }, unlock, unlock);
  });
  return *made;
}

}  // namespace

OwnJob::OwnJob(const std::string& directory, Peer rank) : key_(std::to_string(rank) + " " + directory) {
  Table& jobs = table();
  const MutexLock lock(jobs.mutex);
  std::vector<Place>& places = jobs.places[key_];
  while (number_ < places.size() && places[number_].taken) ++number_;
  if (number_ == places.size()) places.emplace_back();
  places[number_].taken = true;
}

OwnJob::~OwnJob() {
  Table& jobs = table();
  const MutexLock lock(jobs.mutex);
  jobs.places[key_][number_].taken = false;
}

std::vector<std::uint64_t> OwnJob::tokens_before() const {
  Table& jobs = table();
  const MutexLock lock(jobs.mutex);
  return jobs.places[key_][number_].tokens;
}

void OwnJob::note_tokens(std::vector<std::uint64_t> tokens) {
  Table& jobs = table();
  const MutexLock lock(jobs.mutex);
  jobs.places[key_][number_].tokens = std::move(tokens);
}

}  // namespace pinion::transfer
