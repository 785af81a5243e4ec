#include "transfer/bootstrap/launcher_exchange.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transfer/bootstrap/pmi_client.h"
#include "transfer/bootstrap/pmix_exchange.h"

namespace pinion::transfer {

namespace {

/// A card in pieces; a launcher's values hold 1,024 bytes or fewer.
constexpr std::size_t kMostPieces = 64;

bool has_pmix() { return std::getenv("PMIX_NAMESPACE") && std::getenv("PMIX_RANK"); }

/// The socket of PMI-1; negative: there is none.
int pmi_descriptor() {
  const char* const text = std::getenv("PMI_FD");
  return text && *text ? std::atoi(text) : -1;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

/// False: it is no such text.
bool from_hex(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % 2 != 0) return false;
  for (std::size_t at = 0; at < text.size(); at += 2) {
    const char pair[] = {text[at], text[at + 1], 0};
    if (std::string_view(pair).find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
    bytes += static_cast<char>(std::strtoul(pair, nullptr, 16));
  }
  return true;
}

std::string key(Peer rank, std::size_t piece) {
  return "pinion-" + std::to_string(rank) + "-" + std::to_string(piece);
}

/// The first piece begins with the number of pieces.
Error put_card(PmiClient& pmi, const Card& own) {
  constexpr std::size_t kCount = 3;
  const std::string text = to_hex(card_to_bytes(own));
  const std::size_t a_piece = pmi.most() > kCount ? pmi.most() - kCount : 0;
  const std::size_t pieces = a_piece == 0 ? 0 : (text.size() + a_piece - 1) / a_piece;
  if (pieces == 0 || pieces > kMostPieces)
    return Error::make(ENOTSUP, "the launcher's PMI values of %zu bytes are too short for a card",
                       pmi.most());
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    std::string value = text.substr(piece * a_piece, a_piece);
    if (piece == 0) value = std::to_string(pieces) + "." + value;
    if (Error error = pmi.put(key(own.rank, piece), value)) return error;
  }
  return {};
}

Error get_card(PmiClient& pmi, Peer rank, Peer peers, Card& card) {
  std::string text;
  std::size_t pieces = 1;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    std::string value;
    if (Error error = pmi.get(key(rank, piece), value)) return error;
    if (piece == 0) {
      pieces = std::strtoul(value.c_str(), nullptr, 10);
      const std::size_t dot = value.find('.');
      if (pieces == 0 || pieces > kMostPieces || dot == value.npos)
        return Error::make(EBADMSG, "process %u put no card by PMI", rank);
      value.erase(0, dot + 1);
    }
    text += value;
  }
  std::string bytes;
  if (!from_hex(text, bytes)) return Error::make(EBADMSG, "the card of process %u is damaged", rank);
  Error error = card_from_bytes(bytes, card);
  return error ? error : check_card(card, rank, peers);
}

}  // namespace

bool launcher_exchanges() { return has_pmix() || pmi_descriptor() >= 0; }

Error exchange_by_pmi(int descriptor, const Card& own, Duration within, std::vector<Card>& cards) {
  PmiClient pmi(descriptor, monotonic_now() + within);
  Error error = pmi.begin();
  if (!error) error = put_card(pmi, own);
  if (!error) error = pmi.barrier();
  cards.assign(own.peers, {});
  for (Peer rank = 0; !error && rank < own.peers; ++rank) error = get_card(pmi, rank, own.peers, cards[rank]);
  // Otherwise the launcher would end the whole job when this process ends.
  if (!error) error = pmi.finish();
  return error;
}

Error exchange_by_launcher(const Card& own, Duration within, std::vector<Card>& cards) {
  if (has_pmix()) return exchange_by_pmix(own, within, cards);
  const int descriptor = pmi_descriptor();
  if (descriptor < 0)
    return Error::make(ENOTSUP,
                       "the launcher has neither PMIx nor PMI-1: name a directory that all processes share");
  if (::dlsym(RTLD_DEFAULT, "MPI_Init") != nullptr)
    return Error::make(EBUSY,
                       "PMI-1 is the MPI library's, which this process has: name a directory that all "
                       "processes share");
  static std::atomic<bool> used{false};
  if (used.exchange(true))
    return Error::make(EBUSY, "PMI-1 serves one endpoint of a process: name a directory for the others");
  return exchange_by_pmi(descriptor, own, within, cards);
}

}  // namespace pinion::transfer
