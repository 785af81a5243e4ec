#include "transfer/bootstrap/meeting.h"

#include <cerrno>

#include "transfer/bootstrap/launcher_exchange.h"

namespace pinion::transfer {

Error Meeting::meet(std::uint64_t word, std::vector<std::uint64_t>& words) {
  if (membership_.rank >= membership_.peers)
    return Error::make(EINVAL, "process %u of %u: there is no such rank", membership_.rank,
                       membership_.peers);
  own_.word = word;
  Error error;
  if (membership_.directory.empty()) {
    error = exchange_by_launcher(own_, within_, cards_);
  } else if (!(error = directory_.open(membership_.directory, membership_.names)) &&
             !(error = directory_.publish(own_))) {
    error = directory_.collect(membership_.peers, within_, cards_, job_.tokens_before());
  }
  if (error) return error;
  std::vector<std::uint64_t> tokens;
  for (const Card& card : cards_) tokens.push_back(card.token);
  job_.note_tokens(std::move(tokens));
  for (const Card& card : cards_) words.push_back(card.word);
  return {};
}

Error Meeting::check_providers() const {
  for (const Card& card : cards_)
    if (card.provider != own_.provider)
      return Error::make(EINVAL, "process %u uses libfabric's provider %s, this one %s: name one for all",
                         card.rank, card.provider.c_str(), own_.provider.c_str());
  return {};
}

}  // namespace pinion::transfer
