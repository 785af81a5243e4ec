#include "base/kept_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/own_files.h"

namespace pinion {

namespace {

int open_file(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }

std::size_t read_from(int file, char* text, std::size_t size) {
  const ssize_t n = file < 0 ? 0 : ::pread(file, text, size - 1, 0);
  const std::size_t length = n > 0 ? static_cast<std::size_t>(n) : 0;
  text[length] = '\0';
  return length;
}

}  // namespace

KeptText::KeptText(std::string path) : path_(std::move(path)), file_(open_file(path_)) {}

std::size_t KeptText::read(char* text, std::size_t size) const {
  text[0] = '\0';
  if (!is_open()) return 0;
  if (const int file = file_.get(); file >= 0) return read_from(file, text, size);
  std::size_t length = 0;
  with_own_files([&] { length = read_from(open_file(path_), text, size); });
  return length;
}

}  // namespace pinion
