#include "base/warning.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace pinion {

namespace {

char g_name[96] = "";  ///< "rank 3 on node7: "

}  // namespace

void name_process(int rank) {
  if (g_name[0] != 0) return;
  char host[64] = "?";
  ::gethostname(host, sizeof host - 1);
  std::snprintf(g_name, sizeof g_name, "rank %d on %s: ", rank, host);
}

void warn(const char* format, ...) {
  char line[1024];
  constexpr int kMost = sizeof line - 1;  // a longer message is cut
  int length = std::snprintf(line, sizeof line, "pinion: %s", g_name);
  va_list arguments;
  va_start(arguments, format);
  length += std::vsnprintf(line + length, sizeof line - static_cast<std::size_t>(length), format, arguments);
  va_end(arguments);
  length = std::min(length, kMost);
  line[length] = '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<std::size_t>(length) + 1);
}

}  // namespace pinion
