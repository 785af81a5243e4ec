#include "simulate/process.h"

#include <utility>

namespace pinion::simulate {

namespace {
std::vector<std::unique_ptr<Predictor>> only(std::unique_ptr<Predictor> predictor) {
  std::vector<std::unique_ptr<Predictor>> one;
  one.push_back(std::move(predictor));
  return one;
}
}  // namespace

Process::Process(Settings settings, std::unique_ptr<Predictor> predictor, Observer& observer)
    : Process(std::move(settings), only(std::move(predictor)), observer) {}

Process::Process(Settings settings, std::vector<std::unique_ptr<Predictor>> predictors, Observer& observer)
    : settings_(std::move(settings)),
      events_(settings_.start),
      domains_(settings_, events_.clock(), observer),
      comparison_(settings_.nic, events_, observer),
      calls_(settings_, events_, domains_, observer, counters_),
      helper_(settings_, events_, domains_, calls_, observer, counters_,
              [this]() -> node::NodeTable::Post {
                return {{left_pinned_bytes(), 0}, static_cast<std::uint32_t>(threads_.count()), {}, {}};
              }),
      threads_(settings_, events_, domains_, calls_, comparison_, helper_, observer, counters_) {
  calls_.serve(helper_, threads_);
  for (std::unique_ptr<Predictor>& predictor : predictors) domains_.add(std::move(predictor), helper_.desk());
}

void Process::at(Time time, std::function<void()> what) {
  scripts_.push_back(std::move(what));
  events_.schedule(time, Event::What::script, false, static_cast<std::uint32_t>(scripts_.size() - 1));
}

void Process::step(Time until) {
  const Event event = events_.take();
  switch (event.what) {
    case Event::What::thread:
      return threads_.run(static_cast<std::uint16_t>(event.index), until);
    case Event::What::device_call:
      return calls_.device_call_done(event.index);
    case Event::What::copied:
      return threads_.copied(static_cast<std::uint16_t>(event.index));
    case Event::What::release:
      return threads_.end_lease(event.index);
    case Event::What::wait_ends:
      return calls_.wait_ended(event.index);
    case Event::What::helper_wakes:
      return helper_.wake_up(event.index);
    case Event::What::helper_acts:
      return helper_.act();
    case Event::What::collapsed:
      return helper_.collapsed();
    case Event::What::script:
      return scripts_[event.index]();
  }
}

void Process::finish() {
  while (helper_busy()) step();
  helper_.finish();
  comparison_.finish();
  const Domains::LetGo gone = domains_.let_all_go();
  counters_.deregistrations += gone.regions;
  takes_at_end_ = gone.takes;
}

runlog::Counters Process::counters() {
  runlog::Counters all = counters_;
  helper_.add_to(all, ended());
  return all;
}

}  // namespace pinion::simulate
