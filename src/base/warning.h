// Messages of this process on standard error, in lines of 100 columns at most. A message begins with the
// process's rank and host where it is one of several. Any thread, also inside hooks: nothing is allocated,
// and a message is one write.
#pragma once

namespace pinion {

/// Warnings begin with "rank 3 on HOST" after this call; the first name stays. Call it before threads start.
void name_process(int rank);

/// "pinion: rank 3 on node7: ...", without a newline in `format`; further lines begin with "pinion:   ".
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace pinion
