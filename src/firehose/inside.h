// Whether this thread runs a handler or a completion, where nothing may wait. Any thread.
#pragma once

#include "base/thread_mark.h"

namespace pinion::firehose {

class Inside : public ThreadMark<Inside> {};

}  // namespace pinion::firehose
