// Shared by the stub library and its program.
#pragma once

/// The function whose next call leaves; null: none.
extern const char* ways_out_armed;
/// By this.
extern void (*ways_out_leave)();
