// Objects at constant addresses, and lists through them. A pool's objects are reused, and freed with the
// pool, so lock-free readers may look at one that has been recycled. Guarded by their owner's lock.
//
// Only reserve() allocates. It throws bad_alloc, without effect; after it, take() finds so many objects.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace pinion::firehose {

template <class T>
class Pool {
 public:
  void reserve(std::size_t objects) {
    while (free_.size() < objects) {
      if (free_.capacity() == all_.size()) free_.reserve(2 * all_.size() + objects);
      free_.push_back(&all_.emplace_back());
    }
  }
  /// Makes room for so many in all, those in use included.
  void reserve_all(std::size_t objects) {
    if (all_.size() < objects) reserve(free_.size() + objects - all_.size());
  }
  /// Returns an object in the state that its last user left it in.
  T& take() {
    T& object = *free_.back();
    free_.pop_back();
    return object;
  }
  void put(T& object) { free_.push_back(&object); }

 private:
  std::deque<T> all_;
  std::vector<T*> free_;  ///< has room for all
};

template <class T>
struct Link {
  T* next = nullptr;
  T* previous = nullptr;
};

/// A list through the member `link` of its objects.
template <class T, Link<T> T::*link>
class LinkedList {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T* front() const { return first_; }
  static T* next(const T& object) { return (object.*link).next; }

  void push_front(T& object) {
    (object.*link) = {first_, nullptr};
    (first_ ? (first_->*link).previous : last_) = &object;
    first_ = &object;
    ++size_;
  }
  void push_back(T& object) {
    (object.*link) = {nullptr, last_};
    (last_ ? (last_->*link).next : first_) = &object;
    last_ = &object;
    ++size_;
  }
  void erase(T& object) {
    const Link<T> at = object.*link;
    (at.next ? (at.next->*link).previous : last_) = at.previous;
    (at.previous ? (at.previous->*link).next : first_) = at.next;
    --size_;
  }
  /// Returns null if it is empty.
  T* pop_front() {
    T* const object = first_;
    if (object) erase(*object);
    return object;
  }
  /// The first becomes the last.
  T& rotate() {
    T& object = *first_;
    erase(object);
    push_back(object);
    return object;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pinion::firehose
