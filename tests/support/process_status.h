// A line of /proc/self/status, for programs of the tests in C and C++. Any thread; it allocates.
#pragma once

#include <stdio.h>
#include <string.h>

/// The number behind `field`, such as "VmPin:" in KiB; 0: there is no such line.
static inline long of_process_status(const char* field) {
  char line[256];
  long number = 0;
  FILE* status = fopen("/proc/self/status", "r");
  if (status == NULL) return 0;
  while (fgets(line, sizeof line, status))
    if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), "%ld", &number);
  fclose(status);
  return number;
}
