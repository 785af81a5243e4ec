// Finds which calls that take host memory this driver exports, and which of them cuGetProcAddress hands out
// for each version and kind of default stream.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr const char* kNames[] = {"cuMemcpyHtoD",
                                  "cuMemcpyHtoDAsync",
                                  "cuMemcpyDtoH",
                                  "cuMemcpyDtoHAsync",
                                  "cuMemcpy",
                                  "cuMemcpyAsync",
                                  "cuMemcpyPeer",
                                  "cuMemcpyPeerAsync",
                                  "cuMemcpyHtoA",
                                  "cuMemcpyHtoAAsync",
                                  "cuMemcpyAtoH",
                                  "cuMemcpyAtoHAsync",
                                  "cuMemcpy2D",
                                  "cuMemcpy2DUnaligned",
                                  "cuMemcpy2DAsync",
                                  "cuMemcpy3D",
                                  "cuMemcpy3DAsync",
                                  "cuMemcpy3DPeer",
                                  "cuMemcpy3DPeerAsync",
                                  "cuMemcpyBatchAsync",
                                  "cuMemcpy3DBatchAsync",
                                  "cuMemcpyWithAttributesAsync",
                                  "cuMemcpy3DWithAttributesAsync",
                                  "cuMemsetD8",
                                  "cuMemsetD8Async",
                                  "cuMemsetD32",
                                  "cuMemsetD2D8",
                                  "cuMemHostRegister",
                                  "cuMemHostUnregister",
                                  "cuMemHostAlloc",
                                  "cuMemAllocHost",
                                  "cuMemFreeHost",
                                  "cuMemHostGetFlags",
                                  "cuMemHostGetDevicePointer",
                                  "cuMemGetAddressRange",
                                  "cuPointerGetAttribute",
                                  "cuPointerGetAttributes",
                                  "cuPointerSetAttribute",
                                  "cuStreamBeginCapture",
                                  "cuStreamBeginCaptureToGraph",
                                  "cuStreamEndCapture",
                                  "cuThreadExchangeStreamCaptureMode",
                                  "cuGraphAddMemcpyNode",
                                  "cuGraphMemcpyNodeSetParams",
                                  "cuGraphExecMemcpyNodeSetParams",
                                  "cuGraphAddNode",
                                  "cuGraphNodeSetParams",
                                  "cuGraphExecNodeSetParams",
                                  "cuGraphLaunch",
                                  "cuStreamWaitValue32",
                                  "cuStreamSynchronize",
                                  "cuEventSynchronize",
                                  "cuCtxSynchronize",
                                  "cuCtxCreate",
                                  "cuCtxDestroy",
                                  "cuDevicePrimaryCtxReset",
                                  "cuDevicePrimaryCtxRelease",
                                  "cuGetProcAddress",
                                  "cuMemPrefetchAsync",
                                  "cuMemPrefetchBatchAsync",
                                  "cuMemFree",
                                  "cuLaunchKernel"};

/// Every exported name that begins with cu, with its address in this process.
std::map<std::string, void*> exported() {
  std::map<std::string, void*> names;
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<void*>(driver().init), &info)) return names;
  std::FILE* const list = ::popen(format("nm -D --defined-only %s 2>/dev/null", info.dli_fname).c_str(), "r");
  if (!list) return names;
  char line[512], name[400];
  while (std::fgets(line, sizeof line, list)) {
    if (std::sscanf(line, "%*s %*c %399[^@\n]", name) != 1 || std::strncmp(name, "cu", 2) != 0) continue;
    if (void* const address = ::dlsym(driver().library, name)) names[name] = address;
  }
  ::pclose(list);
  return names;
}

/// Lists the exported names of one family.
void list(const std::map<std::string, void*>& names, const char* prefix) {
  std::string text;
  int count = 0;
  for (const auto& [name, address] : names) {
    if (name.rfind(prefix, 0) != 0) continue;
    if (prefix == std::string("cuGraph") && name.find("Memcpy") == std::string::npos) continue;
    text += (text.empty() ? "" : " ") + name;
    ++count;
  }
  while (text.size() > 1500) {
    const std::size_t cut = text.rfind(' ', 1500);
    emit(format("exported %s*", prefix), text.substr(0, cut));
    text.erase(0, cut + 1);
  }
  emit(format("exported %s*", prefix), text, "", format("%d names", count));
}

/// The symbol of the same address, or "unexported".
std::string symbol_of(const std::map<std::string, void*>& names, void* address) {
  std::string text;
  for (const auto& [name, at] : names) {
    if (at == address) text += (text.empty() ? "" : " = ") + name;
  }
  return text.empty() ? "an unexported address" : text;
}

void names() {
  Session session;
  const std::map<std::string, void*> exports = exported();
  emit("exported symbols that begin with cu", format("%zu", exports.size()));
  for (const char* const prefix : {"cuMemcpy", "cuMemHost", "cuMemset", "cuGraph", "cuPointer", "cuGetProc",
                                   "cuMemAllocHost", "cuMemFreeHost"}) {
    list(exports, prefix);
  }
  int newest = 0;
  must(driver().driver_version(&newest), "cuDriverGetVersion");
  for (const char* const name : kNames) {
    for (const std::uint64_t flags : {0, 2}) {
      std::string text, last;
      for (const int version : {2000, 3020, 4000, 6050, 7000, 10000, 11030, 12000, 12080, 13000, newest}) {
        void* address = nullptr;
        int status = -1;
        const Result result = driver().get_proc_address(name, &address, version, flags, &status);
        const std::string found = result != kSuccess || !address
                                      ? format("none (result %d, status %d)", result, status)
                                      : symbol_of(exports, address);
        if (found != last) text += format("%sfrom %d: %s", text.empty() ? "" : "; ", version, found.c_str());
        last = found;
      }
      emit(format("cuGetProcAddress %s, %s", name, flags ? "per-thread" : "legacy"), text);
    }
  }
}

}  // namespace

void add_names(Experiments& all) { all.push_back({"names", 10, names}); }

}  // namespace pinion::gpu
