// The report of visible.cpp's library on itself.
extern "C" [[gnu::visibility("hidden")]] void report(const char* object, void* library);
extern "C" auto* library_report() { return &report; }
