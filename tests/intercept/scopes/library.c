// A copy of a library (VALUE 1, 2), a wrapper of it (3), or a user that lacks the function (0).
#if VALUE == 1 || VALUE == 2
// The older version of the name is there beside the new one, as in libibverbs.
__asm__(".symver scope_probe_old_code, scope_probe@OLD");
int scope_probe_old_code(void) { return -VALUE; }
__asm__(".symver scope_probe_code, scope_probe@@NEW");
int scope_probe_code(void) { return VALUE; }
#elif VALUE != 0
int scope_probe(void) { return VALUE; }
#endif
/// An address inside of the library.
int scope_here(void) { return VALUE; }
/// Calls what the dynamic linker bound the library to; 0: nothing.
#if VALUE == 0
extern int scope_probe(void) __attribute__((weak));
int scope_bound(void) { return scope_probe ? scope_probe() : 0; }
#else
extern int scope_probe(void);
int scope_bound(void) { return scope_probe(); }
#endif
