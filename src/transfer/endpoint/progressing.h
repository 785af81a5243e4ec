// Whether this thread is inside the progress of an endpoint, where a wait for peers would never end: their
// messages are delivered there alone. Any thread; hooks may ask.
#pragma once

#include "base/thread_mark.h"

namespace pinion::transfer {

class Progressing : public ThreadMark<Progressing> {};

}  // namespace pinion::transfer
