/* The foreign hookers of the matrix: how each is loaded and unloaded, and that heard() receives its events.
 */
#pragma once

#include <stddef.h>

struct hooker {
  const char* name;
  int (*load)(void);                         /* whether it reports events */
  void (*unload)(void);                      /* null: it cannot */
  void (*watch)(void* memory, size_t bytes); /* null: it sees all memory */
  void (*settle)(void); /* waits until the events so far are reported; null: they are at once */
  /* The byte in the middle as a peer receives it by the library's own cache; null: it has none of a device's.
   */
  int (*send)(char* memory, size_t bytes);
  int only_before;       /* it is preloaded */
  int loses_destination; /* of mremap: the page would land anywhere */
};

/* Ends the process where the name is unknown. */
const struct hooker* find_hooker(const char* name);

/* Ends the process: this row cannot exist here. */
void absent(const char* reason);
/* An event of these bytes. From hooks: any thread, no allocation. */
void heard(const void* address, size_t bytes);
