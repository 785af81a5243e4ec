#include "transfer/endpoint/tcp_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

namespace pinion::transfer {

namespace {

namespace fs = std::filesystem;

/// An address as the kernel's tables write it: 0100007F:1F90. Empty: of another family than IP.
std::string text_of(const sockaddr_storage& address) {
  std::uint32_t words[4]{};
  std::size_t count = 0;
  std::uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    words[0] = v4.sin_addr.s_addr;
    port = v4.sin_port;
    count = 1;
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(words, &v6.sin6_addr, sizeof words);
    port = v6.sin6_port;
    count = 4;
  }
  std::string text;
  char part[16];
  for (std::size_t i = 0; i < count; ++i) {
    std::snprintf(part, sizeof part, "%08X", words[i]);
    text += part;
  }
  std::snprintf(part, sizeof part, ":%04X", ntohs(port));
  return count == 0 ? text : text + part;
}

std::string text_of(const std::vector<unsigned char>& address) {
  sockaddr_storage storage{};
  if (address.size() > sizeof storage) return {};
  std::memcpy(&storage, address.data(), address.size());
  return text_of(storage);
}

std::string port_of(const std::string& address) { return address.substr(address.find(':') + 1); }

/// The numbers of a process's sockets. False: they cannot be read.
bool sockets_of(int process, std::set<std::string>& numbers) {
  std::error_code failure;
  const fs::path files = "/proc/" + std::to_string(process) + "/fd";
  for (fs::directory_iterator file(files, failure), end; !failure && file != end; file.increment(failure)) {
    std::error_code closed;
    const std::string target = fs::read_symlink(file->path(), closed).string();
    constexpr std::string_view kPrefix = "socket:[";
    if (target.starts_with(kPrefix))
      numbers.insert(target.substr(kPrefix.size(), target.size() - kPrefix.size() - 1));
  }
  return !failure;
}

/// The connections of a process: pairs of its address and the other end's.
using Connections = std::set<std::pair<std::string, std::string>>;

bool connections_of(int process, Connections& connections) {
  std::set<std::string> numbers;
  if (!sockets_of(process, numbers)) return false;
  bool read = false;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines("/proc/" + std::to_string(process) + table);
    std::string line;
    while (std::getline(lines, line)) {
      read = true;
      std::istringstream words(line);
      std::string own, other, number, skipped;
      words >> skipped >> own >> other;
      for (int i = 0; i < 6; ++i) words >> skipped;
      if (words >> number && numbers.contains(number)) connections.emplace(own, other);
    }
  }
  return read;
}

/// Keeps a socket from being closed and its number from being used anew.
class Duplicate {
 public:
  explicit Duplicate(int file) : file_(::fcntl(file, F_DUPFD_CLOEXEC, 0)) {}
  ~Duplicate() {
    if (file_ >= 0) ::close(file_);
  }
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;

  /// Both ends of a TCP connection.
  bool ends(std::string& own, std::string& other) const {
    sockaddr_storage local{}, remote{};
    socklen_t local_bytes = sizeof local, remote_bytes = sizeof remote;
    int kind = 0;
    socklen_t kind_bytes = sizeof kind;
    if (file_ < 0 || ::getsockopt(file_, SOL_SOCKET, SO_TYPE, &kind, &kind_bytes) != 0 ||
        kind != SOCK_STREAM || ::getsockname(file_, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0 ||
        ::getpeername(file_, reinterpret_cast<sockaddr*>(&remote), &remote_bytes) != 0)
      return false;
    own = text_of(local);
    other = text_of(remote);
    return !own.empty() && !other.empty();
  }
  /// Drops the data that has arrived, too. Readers see the end of the connection.
  bool reset() const {
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    const bool done = ::connect(file_, &nowhere, sizeof nowhere) == 0;
    ::shutdown(file_, SHUT_RDWR);
    return done;
  }

 private:
  const int file_;
};

std::vector<int> open_files() {
  std::vector<int> files;
  std::error_code failure;
  for (fs::directory_iterator file("/proc/self/fd", failure), end; !failure && file != end;
       file.increment(failure))
    files.push_back(std::atoi(file->path().filename().c_str()));
  return files;
}

}  // namespace

bool reset_tcp_connections(const std::vector<unsigned char>& own, const Card& peer) try {
  const std::string here = text_of(own), there = text_of(peer.address);
  Connections theirs;
  if (here.empty() || there.empty() || !connections_of(peer.process, theirs)) return false;
  bool all = true;
  for (const int file : open_files()) {
    const Duplicate socket(file);
    std::string local, remote;
    if (!socket.ends(local, remote) || !theirs.contains({remote, local})) continue;
    // The two processes may have other connections, too.
    if (remote == there || port_of(local) == port_of(here)) all &= socket.reset();
  }
  return all;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace pinion::transfer
