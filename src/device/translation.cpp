#include "device/translation.h"

#include <algorithm>
#include <bit>

namespace pinion {

std::size_t translation_entries(Range pages, std::uint64_t page_sizes) {
  return translation_entries(pages, page_sizes, PageFiles());
}

std::size_t translation_entries(Range pages, std::uint64_t page_sizes, const PageFiles& files) {
  if (pages.bytes() <= page_size()) return 1;
  const std::uint64_t at_most = 2 * std::uint64_t{size_of_pages(pages, files)} - 1;
  const std::size_t size = std::max<std::uint64_t>(std::bit_floor(page_sizes & at_most), page_size());
  return (pages.end - 1) / size - pages.begin / size + 1;
}

}  // namespace pinion
