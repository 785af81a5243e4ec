// Clang's attributes for locks; empty elsewhere. The test `thread_safety` compiles with
// -Werror=thread-safety.
//   int count_ GUARDED_BY(mutex_);       read and written under mutex_ only
//   Node* head_ PT_GUARDED_BY(mutex_);   what the pointer leads to is
//   void grow() REQUIRES(mutex_);        the caller holds mutex_
//   void stop() EXCLUDES(mutex_);        the caller does not; the function takes it
// NO_THREAD_SAFETY_ANALYSIS stands only at a function whose comment says why it needs no lock.
#pragma once

#if defined(__clang__)
#define PINION_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define PINION_THREAD_ATTRIBUTE(attribute)
#endif

#define CAPABILITY(name) PINION_THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY PINION_THREAD_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(lock) PINION_THREAD_ATTRIBUTE(guarded_by(lock))
#define PT_GUARDED_BY(lock) PINION_THREAD_ATTRIBUTE(pt_guarded_by(lock))
#define REQUIRES(...) PINION_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) PINION_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) PINION_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) PINION_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) PINION_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) PINION_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) PINION_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) PINION_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) PINION_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(lock) PINION_THREAD_ATTRIBUTE(assert_capability(lock))
#define RETURN_CAPABILITY(lock) PINION_THREAD_ATTRIBUTE(lock_returned(lock))
#define NO_THREAD_SAFETY_ANALYSIS PINION_THREAD_ATTRIBUTE(no_thread_safety_analysis)
