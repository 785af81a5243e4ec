#include "base/warning.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/shown_text.h"

namespace pinion {

namespace {

char g_name[96] = "";  ///< "rank 3 on node7: "

/// Words, filled into lines.
class Lines {
 public:
  void add(std::string_view word) {
    if (column_ + 1 + word.size() > kColumns) {
      put("\n");
      column_ = 0;
      put("pinion:  ");
    }
    if (size_ > 0) put(" ");
    put(word);
  }
  void write() {
    text_[size_++] = '\n';
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text_, size_);
  }

 private:
  static constexpr std::size_t kColumns = 100;

  void put(std::string_view part) {
    const std::size_t kept = std::min(part.size(), sizeof text_ - 1 - size_);
    part.copy(text_ + size_, kept);
    size_ += kept;
    column_ += kept;
  }

  char text_[1280];
  std::size_t size_ = 0, column_ = 0;
};

}  // namespace

void name_process(int rank) {
  if (g_name[0] != 0) return;
  char host[64] = "?";
  ::gethostname(host, sizeof host - 1);
  std::snprintf(g_name, sizeof g_name, "rank %d on %s: ", rank, host);
}

void warn(const char* format, ...) {
  char text[1024];  // a longer message is cut
  const int named = std::snprintf(text, sizeof text, "pinion: %s", g_name);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + named, sizeof text - static_cast<std::size_t>(named), format, arguments);
  va_end(arguments);
  make_printable(text);
  Lines lines;
  const char* word = text;
  while (*word != 0) {
    const std::size_t length = std::strcspn(word, " ");
    lines.add({word, length});
    word += length + (word[length] != 0 ? 1 : 0);
  }
  lines.write();
}

}  // namespace pinion
