// Cards by PMI-1, against a launcher that this test plays: a good one, a silent one, and liars.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transfer/bootstrap/launcher_exchange.h"
#include "transfer/bootstrap/pmi_client.h"

namespace pinion::transfer {
namespace {

/// Answers one process line by line, until that hangs up.
class Launcher {
 public:
  using Answer = std::function<std::string(const std::string& line)>;
  explicit Launcher(Answer answer) {
    int both[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
    client = both[0];
    thread_ = std::thread([answer = std::move(answer), server = both[1]] {
      std::string received;
      char bytes[512];
      for (ssize_t count; (count = ::read(server, bytes, sizeof bytes)) > 0;) {
        received.append(bytes, static_cast<std::size_t>(count));
        for (std::size_t end; (end = received.find('\n')) != received.npos; received.erase(0, end + 1)) {
          const std::string text = answer(received.substr(0, end));
          if (text == "hang up") {
            ::close(server);
            return;
          }
          // A few bytes at a time, as a stream may bring them.
          for (std::size_t at = 0; at < text.size(); at += 7)
            if (::send(server, text.data() + at, std::min<std::size_t>(7, text.size() - at), MSG_NOSIGNAL) <
                0)
              break;
        }
      }
      ::close(server);
    });
  }
  ~Launcher() {
    ::close(client);
    thread_.join();
  }
  int client = -1;

 private:
  std::thread thread_;
};

std::string word(const std::string& line, const std::string& name) {
  const std::size_t at = line.find(name + "=");
  return at == line.npos ? "" : line.substr(at + name.size() + 1, line.find(' ', at) - at - name.size() - 1);
}

/// The texts of a job, and a barrier that one process passes alone.
class Space {
 public:
  explicit Space(std::size_t most = 1024) : most_(most) {}
  std::string operator()(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const std::string command = word(line, "cmd");
    if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (command == "get_maxes")
      return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(most_) + "\n";
    if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0\n";
    if (command == "barrier_in") return "cmd=barrier_out\n";
    if (command == "finalize") return "cmd=finalize_ack\n";
    const std::string key = word(line, "key");
    strange |= word(line, "kvsname") != "kvs_1_0" || key.size() >= 64;
    if (command == "put") {
      strange |= word(line, "value").size() >= most_;
      texts[key] = word(line, "value");
      return "cmd=put_result rc=0 msg=success\n";
    }
    return texts.contains(key) ? "cmd=get_result rc=0 msg=success value=" + texts[key] + "\n"
                               : "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  }
  std::map<std::string, std::string> texts;
  bool strange = false;  ///< a request that no launcher would take

 private:
  const std::size_t most_;
  std::mutex mutex_;
};

Card card(Peer rank, Peer peers) {
  Card made = own_card({rank, peers, ""});
  made.provider = "tcp;ofi_rxm";
  made.address.assign(300, static_cast<unsigned char>(rank));
  return made;
}

Error exchange(Launcher::Answer answer, const Card& own, std::vector<Card>& cards,
               Duration within = 60 * kSecond) {
  const Launcher launcher(std::move(answer));
  return exchange_by_pmi(launcher.client, own, within, cards);
}

TEST(TransferPmi, CardsAreExchangedInPieces) {
  for (const std::size_t most : {64u, 1024u}) {
    Space space(most);
    const Card first = card(0, 2), second = card(1, 2);
    std::vector<Card> cards;
    const auto answer = [&](const std::string& line) { return space(line); };
    EXPECT_EQ(exchange(answer, second, cards).code, EPROTO) << "the first has put nothing";
    const Error error = exchange(answer, first, cards);
    ASSERT_FALSE(error) << error.message;
    ASSERT_EQ(cards.size(), 2u);
    EXPECT_FALSE(space.strange);
    for (const Card& made : {first, second}) {
      EXPECT_EQ(cards[made.rank].token, made.token);
      EXPECT_EQ(cards[made.rank].address, made.address);
    }
  }
  Space narrow(10);
  std::vector<Card> cards;
  EXPECT_EQ(exchange([&](const std::string& line) { return narrow(line); }, card(0, 1), cards).code, ENOTSUP);
}

TEST(TransferPmi, ASilentLauncherIsAnErrorAfterABound) {
  std::vector<Card> cards;
  Space space;
  for (const char* silent : {"init", "barrier_in", "get "}) {
    const auto answer = [&](const std::string& line) {
      return line.find(std::string("cmd=") + silent) == 0 ? "" : space(line);
    };
    EXPECT_EQ(exchange(answer, card(0, 1), cards, 100 * kMillisecond).code, ETIMEDOUT) << silent;
  }
  EXPECT_EQ(exchange([](const std::string&) { return "hang up"; }, card(0, 1), cards).code, ECONNRESET);
}

TEST(TransferPmi, LiesAreErrors) {
  std::vector<Card> cards;
  const std::pair<const char*, std::string> lies[] = {
      {"init", "cmd=response_to_init rc=-1\n"},
      {"get_maxes", "cmd=maxes vallen_max=99999999999999999999\n"},
      {"get_my_kvsname", "cmd=my_kvsname kvsname=\n"},
      {"barrier_in", "cmd=barrier_outside\n"},
      {"get ", "cmd=get_result rc=0 value=\n"},
      {"get ", "cmd=get_result rc=0 value=1.zz\n"},
      {"get ", "cmd=get_result rc=0 value=99999999999999999999.00\n"},
      {"get ", "cmd=get_result rc=0 value=65.00\n"},
      {"get ", "cmd=get_result rc=0 value=2.00\n"},
      {"finalize", std::string(100'000, 'x')},
  };
  for (const auto& [command, lie] : lies) {
    Space space;
    const auto answer = [&](const std::string& line) {
      return line.find(std::string("cmd=") + command) == 0 ? lie : space(line);
    };
    EXPECT_NE(exchange(answer, card(0, 1), cards).code, 0) << command << ": " << lie.substr(0, 60);
  }
  Space space;
  ASSERT_FALSE(exchange([&](const std::string& line) { return space(line); }, card(0, 1), cards));
  const auto answer = [&](const std::string& line) { return space(line); };
  EXPECT_NE(exchange(answer, card(1, 2), cards).code, 0) << "a card of a job of one";
}

TEST(TransferPmi, AnyAnswersAreRefusedOrRight) {
  std::mt19937 random(11);
  const Card own = card(0, 1);
  for (int i = 0; i < 300; ++i) {
    Space space;
    const auto answer = [&](const std::string& line) {
      std::string text = space(line);
      if (random() % 4 != 0) return text;
      for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
        text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
      return text.substr(0, text.find('\n')) + "\n";  // a line still, or the client would wait
    };
    std::vector<Card> cards;
    const Error error = exchange(answer, own, cards);
    if (!error) {
      EXPECT_EQ(cards.at(0).address, own.address);
    }
  }
}

}  // namespace
}  // namespace pinion::transfer
