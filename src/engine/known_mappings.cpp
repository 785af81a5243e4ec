#include "engine/known_mappings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/mix.h"
#include "base/plain_file.h"
#include "base/process.h"
#include "base/range.h"

namespace pinion {

namespace {

std::uint64_t mix(std::uint64_t h, std::string_view text) {
  for (const char c : text) h = pinion::mix(h, static_cast<unsigned char>(c));
  return h;
}

/// The first two words of a command's line.
std::string_view first_words(std::string_view line) {
  const std::size_t first = line.find(' ');
  return line.substr(0, first == std::string_view::npos ? first : line.find(' ', first + 1));
}

/// 0: its file cannot be told.
std::uint64_t number_of_program(const std::string& command) {
  struct stat status {};
  const std::string path = executable_path();
  if (::stat(path.c_str(), &status) != 0) return 0;
  std::uint64_t h = mix(mix(1, path), first_words(command));
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_mtim.tv_sec),
        static_cast<std::uint64_t>(status.st_mtim.tv_nsec)})
    h = pinion::mix(h, value);
  return h;
}

}  // namespace

KnownMappings::KnownMappings(const std::string& command, const std::string& directory)
    : file_(open_users_file(directory + "/pinion-mappings-" + std::to_string(::geteuid()))),
      program_(number_of_program(command) & ~kPages) {
  if (program_ == 0) file_.close();
  if (file_.get() < 0) return;
  may_grow_ = file_size_limit() >= kMost * sizeof(std::uint64_t);
  // Writes nothing: add() may follow in a sandbox that the program closes around the calls that it has seen.
  static_cast<void>(!::pwrite(file_.get(), "", 0, 0));
}

std::vector<std::uint64_t> KnownMappings::words() const {
  std::vector<std::uint64_t> words(kMost);
  const ssize_t bytes = ::pread(file_.get(), words.data(), kMost * sizeof words[0], 0);
  words.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)) / sizeof words[0]);
  return words;
}

std::vector<std::uint64_t> KnownMappings::sizes() const {
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t word : words())
    if ((word & ~kPages) == program_ && word != program_) sizes.push_back((word & kPages) * page_size());
  return sizes;
}

void KnownMappings::add(std::uint64_t bytes) const {
  const std::uint64_t pages = bytes / page_size();
  if (!may_grow_ || pages == 0 || pages > kPages) return;
  const std::uint64_t word = program_ | pages;
  const std::vector<std::uint64_t> there = words();
  if (std::ranges::find(there, word) != there.end()) return;
  std::size_t place = static_cast<std::size_t>(std::ranges::find(there, 0u) - there.begin());
  if (place >= kMost) place = pinion::mix(1, word) % kMost;
  static_cast<void>(!::pwrite(file_.get(), &word, sizeof word, static_cast<off_t>(place * sizeof word)));
}

}  // namespace pinion
