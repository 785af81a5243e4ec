#include "predict/profile.h"

#include <cstring>

#include "base/version.h"

namespace pinion {

namespace {

// The file: Header | Transition[] | Reuse[]. Little-endian, natural alignment. Version 0.1 wrote a third
// list, which was never read.
constexpr char kMagic[8] = {'P', 'I', 'N', 'I', 'O', 'N', 'P', 'R'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kMostEntries = 1 << 20;  ///< of each kind; tables keep fewer
constexpr std::uint64_t kUnreadBytes = 24;       ///< an entry of the third list
constexpr std::int64_t kLongest = std::int64_t{1} << 60;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t transitions, reuses, unread;
  std::uint64_t checksum;  ///< of what follows
};
static_assert(sizeof(Header) == 48);
static_assert(sizeof(Profile::Transition) == 40 && sizeof(Profile::Reuse) == 16);

std::uint64_t checksum(const char* bytes, std::size_t size) {
  std::uint64_t sum = 0xCBF29CE484222325ull;  // FNV-1a
  for (std::size_t i = 0; i < size; ++i)
    sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001B3ull;
  return sum;
}

template <class T>
void append(std::string& bytes, const std::vector<T>& entries) {
  if (!entries.empty())
    bytes.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(T));
}
template <class T>
const char* take(const char* at, std::vector<T>& entries, std::uint64_t count) {
  entries.resize(count);
  if (count > 0) std::memcpy(entries.data(), at, count * sizeof(T));
  return at + count * sizeof(T);
}

Error broken(const char* why) { return Error::make(EINVAL, "profile: %s; it is not used", why); }

}  // namespace

bool Profile::has_mark(const std::string& bytes) {
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

std::string Profile::to_bytes() const {
  std::string bytes(sizeof(Header), '\0');
  append(bytes, transitions);
  append(bytes, reuses);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.transitions = transitions.size();
  header.reuses = reuses.size();
  header.checksum = checksum(bytes.data() + sizeof header, bytes.size() - sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Error Profile::from_bytes(const std::string& bytes) {
  *this = {};
  Header header;
  if (!has_mark(bytes)) return broken("not a profile of Pinion");
  if (bytes.size() < sizeof header) return broken("cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != kVersion)
    return Error::make(
        EINVAL, "profile: format %u, written by %s Pinion; this one (%s) reads format %u; it is not used",
        header.version, header.version > kVersion ? "a newer" : "an older", PINION_VERSION, kVersion);
  if (header.transitions > kMostEntries || header.reuses > kMostEntries || header.unread > kMostEntries)
    return broken("damaged");
  const std::uint64_t size =
      header.transitions * sizeof(Transition) + header.reuses * sizeof(Reuse) + header.unread * kUnreadBytes;
  const std::uint64_t there = bytes.size() - sizeof header;
  if (there < size) return broken("cut short");
  if (there > size || checksum(bytes.data() + sizeof header, size) != header.checksum)
    return broken("damaged");
  const char* at = bytes.data() + sizeof header;
  at = take(at, transitions, header.transitions);
  take(at, reuses, header.reuses);
  // A right checksum may still cover nonsense.
  const auto sane = [](std::int64_t ns) { return ns > -kLongest && ns < kLongest; };
  bool good = true;
  for (const Transition& transition : transitions)
    good &= transition.context != 0 && sane(transition.after_ns) && transition.right >= 0 &&
            transition.right <= 1;
  for (const Reuse& reuse : reuses) good &= reuse.context != 0 && reuse.after_ns > 0 && sane(reuse.after_ns);
  if (good) return {};
  *this = {};
  return broken("damaged");
}

}  // namespace pinion
