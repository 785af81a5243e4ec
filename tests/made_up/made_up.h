/* What the made-up libibverbs does beyond the real one's functions, for the programs here. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Registrations that have reached the library, and those that it holds. */
unsigned long made_up_registered(void);
unsigned long made_up_held(void);
/* The device disappears: every call for it fails with EIO from now on. */
void made_up_unplug(void);

#ifdef __cplusplus
}
#endif
