#include "lease/known_mappings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/kept_file.h"
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

using Words = std::vector<std::uint64_t>;

/// Empty where the file may not be had.
Words words_of(const KeptFile& file) {
  Words words(KnownMappings::kMost);
  const ssize_t bytes = ::pread(file.get(), words.data(), words.size() * sizeof words[0], 0);
  words.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)) / sizeof words[0]);
  return words;
}

void write(const KeptFile& file, std::size_t place, std::uint64_t word) {
  const std::size_t at = place * sizeof word;
  if (file_size_limit() >= at + sizeof word)
    static_cast<void>(!::pwrite(file.get(), &word, sizeof word, static_cast<off_t>(at)));
}

}  // namespace

KnownMappings::KnownMappings(const std::string& command, const std::string& directory)
    : path_(directory + "/pinion-mappings-" + std::to_string(::geteuid())),
      program_(number_of_program(command) & kProgram) {}

std::vector<KnownMappings::Size> KnownMappings::sizes() const {
  std::vector<Size> sizes;
  if (program_ == 0) return sizes;
  for (const std::uint64_t word : words_of(KeptFile(open_users_file(path_))))
    if ((word & kProgram) == program_ && (word & kPages) != 0)
      sizes.push_back({(word & kPages) * page_size(), static_cast<unsigned>((word & kAtOnce) >> kAtOnceShift),
                       (word & kWholly) != 0});
  return sizes;
}

std::size_t KnownMappings::find(const Words& words, std::uint64_t word) {
  constexpr std::uint64_t kIts = kProgram | kPages;
  const auto found = std::ranges::find(words, word & kIts, [](std::uint64_t w) { return w & kIts; });
  return static_cast<std::size_t>(found - words.begin());
}

void KnownMappings::keep(const Size& size) const {
  const std::uint64_t pages = size.bytes / page_size();
  if (program_ == 0 || pages == 0 || pages > kPages) return;
  const std::uint64_t word = program_ | std::uint64_t{std::min(size.at_once, kMostAtOnce)} << kAtOnceShift |
                             (size.wholly ? kWholly : 0) | pages;
  const KeptFile file(open_users_file(path_));
  const Words there = words_of(file);
  std::size_t place = find(there, word);
  if (place < there.size() && ((there[place] & kAtOnce) == 0 || there[place] == word)) return;
  if (place == there.size()) place = static_cast<std::size_t>(std::ranges::find(there, 0u) - there.begin());
  write(file, place < kMost ? place : pinion::mix(1, word) % kMost, word);
}

void KnownMappings::forget(std::uint64_t bytes) const {
  if (program_ == 0) return;
  const KeptFile file(open_users_file(path_));
  const Words there = words_of(file);
  const std::size_t place = find(there, program_ | bytes / page_size());
  if (place < there.size() && (there[place] & kAtOnce) != 0) write(file, place, 0);
}

}  // namespace pinion
