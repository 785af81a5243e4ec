#include "cli/report/hugepages.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/text.h"

namespace pinion::cli {

std::set<std::string> directories_of(const std::vector<std::string>& logs) {
  namespace fs = std::filesystem;
  std::set<std::string> directories;
  for (const std::string& log : logs)
    directories.insert(fs::is_directory(log) ? log : fs::path(log).parent_path().string());
  return directories;
}

PlacementFigures hugepages_of(const std::vector<std::string>& logs) {
  PlacementFigures sum;
  for (const std::string& directory : directories_of(logs)) sum.add(read_placement_figures(directory));
  return sum;
}

std::string hugepages_text(const PlacementFigures& f) {
  if (f.processes == 0) return {};
  const auto text = [](std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  return fmt::format(
      "{} with the hugepage heap: at most {} in {} blocks; mapped {} for transparent hugepages, {} "
      "on base pages; at the end blocks had used {}, and {} lay in hugepages{}",
      plural_text(f.processes, "process", "processes"), text(f.peak_bytes), count_text(f.blocks),
      text(f.advised_bytes), text(f.base_bytes), text(f.used_bytes), text(f.hugepage_bytes),
      f.static_bytes == 0 ? ""
                          : fmt::format(", and {} of {} of static data", text(f.static_hugepage_bytes),
                                        text(f.static_bytes)));
}

Json to_json(const PlacementFigures& f) {
  if (f.processes == 0) return nullptr;
  return {{"processes", f.processes},
          {"blocks", f.blocks},
          {"peak_bytes", f.peak_bytes},
          {"transparent_bytes", f.advised_bytes},
          {"base_bytes", f.base_bytes},
          {"used_at_end_bytes", f.used_bytes},
          {"in_hugepages_at_end_bytes", f.hugepage_bytes},
          {"returned_bytes", f.returned_bytes},
          {"static_bytes", f.static_bytes},
          {"static_in_hugepages_at_end_bytes", f.static_hugepage_bytes}};
}

}  // namespace pinion::cli
