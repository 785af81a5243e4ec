// Lets NVIDIA's runtime library load the driver, and looks through its variables for the functions that it
// got. Prints its result, and how many functions of the table are the driver's own, and from elsewhere.
//   runtime [FILE]                the file that the runtime library is in, unless it is in the program
#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "intercept/cuda/reach/table.h"

extern "C" int cudaGetDeviceCount(int* count);

namespace {

std::string file_of(const void* code) {
  Dl_info info{};
  return ::dladdr(code, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

struct Found {
  std::set<void*> drivers;  ///< the functions of the driver
  const char* object;       ///< the file name of the object with the runtime library
  std::set<void*> own, elsewhere;
};

void look(Found& found, void* const* begin, std::size_t count) {
  for (void* const* word = begin; word != begin + count; ++word) {
    if (found.drivers.count(*word) != 0) found.own.insert(*word);
    if (file_of(*word).find("libpinion-preload") != std::string::npos) found.elsewhere.insert(*word);
  }
}

int look_through(dl_phdr_info* object, std::size_t, void* data) {
  auto& found = *static_cast<Found*>(data);
  if (std::strstr(object->dlpi_name, found.object) == nullptr) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0)
      look(found, reinterpret_cast<void* const*>((object->dlpi_addr + part.p_vaddr + 7) & ~ElfW(Addr){7}),
           part.p_memsz / 8 - 1);
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::puts(::dlerror()), 2;
  const auto drivers = reinterpret_cast<void* (*)(int)>(::dlsym(library, "reach_function"));
  int count = 0;
  const int result = cudaGetDeviceCount(&count);
  // The program itself is the first object.
  Found found{{}, argc > 1 ? argv[1] : "", {}, {}};
  for (int i = 0; drivers(i) != nullptr; ++i) found.drivers.insert(drivers(i));
  dl_iterate_phdr(look_through, &found);
  const auto amount = [](std::size_t functions) {
    return functions == 0 ? "none" : functions < 50 ? "few" : "many";
  };
  std::printf("%d: %s own, %s elsewhere\n", result, amount(found.own.size()), amount(found.elsewhere.size()));
  return 0;
}
