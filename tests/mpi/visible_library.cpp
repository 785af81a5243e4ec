// What the library of visible.cpp shows of itself.
extern "C" [[gnu::visibility("hidden")]] void report(const char* object, void* library);
extern "C" auto* library_report() { return &report; }
