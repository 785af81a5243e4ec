// A program that lacks RDMA and loads a plugin that has it, twice:
// `verbs_plugin_host local|global [SCENARIO]`. Prints at the end whether libibverbs is loaded still.
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** arguments) {
  char path[4096];
  char* plugin_arguments[] = {arguments[0], count == 3 ? arguments[2] : "loop", NULL};
  if (count != 2 && count != 3) return 2;
  snprintf(path, sizeof path, "%s/libverbs_plugin.so", dirname(strdup(arguments[0])));
  for (int i = 0; i < 2; ++i) {
    void* plugin = dlopen(path, RTLD_NOW | (strcmp(arguments[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!plugin) return puts(dlerror()), 1;
    int (*run)(int, char**) = (int (*)(int, char**))dlsym(plugin, "plugin_main");
    if (!run || run(2, plugin_arguments) != 0) return 1;
    dlclose(plugin);
  }
  void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  puts(library ? "there" : "gone");
  return 0;
}
