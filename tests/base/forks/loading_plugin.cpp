// A library whose constructor does what the program wants.
extern "C" void in_plugins_constructor();

namespace {
[[gnu::constructor]] void construct() { in_plugins_constructor(); }
}  // namespace
