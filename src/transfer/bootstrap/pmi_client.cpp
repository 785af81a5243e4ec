#include "transfer/bootstrap/pmi_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace pinion::transfer {

namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 10;

/// The value of a field in a line of words `name=value`; empty: it has none.
std::string_view field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  }
  return {};
}

/// 0: it is none.
std::size_t number(std::string_view text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos) return 0;
  return std::strtoul(std::string(text).c_str(), nullptr, 10);
}

Error failed(const char* step) {
  const int code = errno;
  return Error::make(code, "PMI_FD: cannot %s: %s", step, std::strerror(code));
}

}  // namespace

Error PmiClient::await(short event) {
  for (;;) {
    const Time now = monotonic_now();
    if (now >= end_)
      return Error::make(ETIMEDOUT,
                         "the launcher gave no answer by PMI: a process of the job may be missing");
    pollfd file{descriptor_, event, 0};
    const Duration rest = std::min<Duration>((end_ - now) / kMillisecond + 1, 1000);
    const int ready = ::poll(&file, 1, static_cast<int>(rest));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return failed("wait");
  }
}

Error PmiClient::write(const std::string& text) {
  for (std::size_t sent = 0; sent < text.size();) {
    if (Error error = await(POLLOUT)) return error;
    const ssize_t count =
        ::send(descriptor_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0)
      sent += static_cast<std::size_t>(count);
    else if (errno != EAGAIN && errno != EINTR)
      return failed("write");
  }
  return {};
}

Error PmiClient::read(std::string& line) {
  std::size_t length;
  while ((length = received_.find('\n')) == received_.npos) {
    if (received_.size() > kLongestLine)
      return Error::make(EPROTO, "the launcher's PMI answer has more than %zu bytes", kLongestLine);
    if (Error error = await(POLLIN)) return error;
    char bytes[4096];
    const ssize_t count = ::recv(descriptor_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count == 0) return Error::make(ECONNRESET, "the launcher has closed PMI_FD");
    if (count > 0)
      received_.append(bytes, static_cast<std::size_t>(count));
    else if (errno != EAGAIN && errno != EINTR)
      return failed("read");
  }
  line = received_.substr(0, length);
  received_.erase(0, length + 1);
  return {};
}

Error PmiClient::ask(const std::string& request, const char* answer, std::string& line) {
  Error error = write(request + "\n");
  if (!error) error = read(line);
  if (error) return error;
  const std::string_view code = field(line, "rc");
  if (field(line, "cmd") == answer && (code.empty() || code == "0")) return {};
  return Error::make(EPROTO, "the launcher answers '%.100s' by PMI to '%.60s'", line.c_str(),
                     request.c_str());
}

Error PmiClient::begin() {
  std::string line;
  Error error = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", line);
  if (!error) error = ask("cmd=get_maxes", "maxes", line);
  if (error) return error;
  // The launcher counts the end of the text.
  most_ = number(field(line, "vallen_max"));
  most_ -= std::min<std::size_t>(most_, 1);
  error = ask("cmd=get_my_kvsname", "my_kvsname", line);
  if (error) return error;
  space_ = field(line, "kvsname");
  return space_.empty() ? Error::make(EPROTO, "the launcher names no space for keys: '%.100s'", line.c_str())
                        : Error{};
}

Error PmiClient::put(const std::string& key, const std::string& value) {
  std::string line;
  return ask("cmd=put kvsname=" + space_ + " key=" + key + " value=" + value, "put_result", line);
}

Error PmiClient::barrier() {
  std::string line;
  return ask("cmd=barrier_in", "barrier_out", line);
}

Error PmiClient::get(const std::string& key, std::string& value) {
  std::string line;
  Error error = ask("cmd=get kvsname=" + space_ + " key=" + key, "get_result", line);
  value = field(line, "value");
  return error;
}

Error PmiClient::finish() {
  std::string line;
  return ask("cmd=finalize", "finalize_ack", line);
}

}  // namespace pinion::transfer
