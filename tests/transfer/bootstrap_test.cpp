// Processes find each other by cards in a directory, which are read as strangers'.
#include "transfer/bootstrap/bootstrap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "support/in_child.h"
#include "support/temporary_directory.h"
#include "transfer/bootstrap/meeting.h"

namespace pinion::transfer {
namespace {

Card card(Peer rank, const std::string& directory, Peer peers = 2) {
  Card made = own_card({rank, peers, directory});
  made.provider = "tcp;ofi_rxm";
  made.address = {1, 2, 3, static_cast<unsigned char>(rank)};
  return made;
}

class TransferBootstrap : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(directory_.open(path_)); }
  Error collect(Duration within = 0) { return directory_.collect(2, within, cards_); }
  void write(const std::string& name, const std::string& bytes, mode_t mode = 0600) {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    ASSERT_EQ(::chmod((path_ + "/" + name).c_str(), mode), 0);
  }
  TemporaryDirectory parent_;
  const std::string path_ = parent_.path() + "/job";
  Directory directory_;
  std::vector<Card> cards_;
};

TEST_F(TransferBootstrap, CardsAreFoundAndTheLastOneRemovesThem) {
  const Card first = card(0, path_), second = card(1, path_);
  ASSERT_FALSE(directory_.publish(first));
  Directory seconds;
  ASSERT_FALSE(seconds.open(path_));
  ASSERT_FALSE(seconds.publish(second));
  ASSERT_FALSE(collect());
  for (const Card& made : {first, second}) {
    const Card& read = cards_.at(made.rank);
    EXPECT_EQ(read.token, made.token);
    EXPECT_EQ(read.node, made.node);
    EXPECT_EQ(read.process, ::getpid());
    EXPECT_EQ(read.started, made.started);
    EXPECT_EQ(read.word, made.word);
    EXPECT_EQ(read.provider, "tcp;ofi_rxm");
    EXPECT_EQ(read.address, made.address);
  }
  EXPECT_NE(first.token, second.token);
  EXPECT_FALSE(directory_.has_left(1));
  seconds.leave(second, [](Peer) { return false; });
  EXPECT_TRUE(directory_.has_left(1));
  ASSERT_FALSE(collect()) << "who comes late finds it nevertheless";
  directory_.leave(first, [](Peer) { return false; });
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TransferBootstrap, AMissingProcessIsAnErrorAfterABound) {
  ASSERT_FALSE(directory_.publish(card(0, path_)));
  const Error error = collect(20 * kMillisecond);
  EXPECT_EQ(error.code, ETIMEDOUT);
  EXPECT_NE(std::string(error.message).find("process 1 of 2"), std::string::npos) << error.message;
}

TEST_F(TransferBootstrap, ACardOfAnEndedProcessIsNotTaken) {
  ASSERT_FALSE(directory_.publish(card(0, path_)));
  test::in_child([&] { EXPECT_FALSE(directory_.publish(card(1, path_))); });
  EXPECT_EQ(collect().code, ETIMEDOUT);
  ASSERT_FALSE(directory_.publish(card(1, path_)));
  EXPECT_FALSE(collect());
}

TEST_F(TransferBootstrap, ASecondJobInADirectoryIsRefused) {
  const Card first = card(0, path_);
  ASSERT_FALSE(directory_.publish(first));
  Directory seconds;
  ASSERT_FALSE(seconds.open(path_));
  const Error error = seconds.publish(card(0, path_));
  EXPECT_EQ(error.code, EADDRINUSE);
  EXPECT_EQ(std::string(error.message), "process " + std::to_string(::getpid()) + " is rank 0 in " + path_ +
                                            " already: another job needs another directory");
  ASSERT_FALSE(directory_.publish(card(1, path_)));
  ASSERT_FALSE(collect());
  EXPECT_EQ(cards_[0].token, first.token) << "the first job's card stays";
  // Once it has left, its place is free.
  directory_.leave(first, [](Peer) { return false; });
  EXPECT_FALSE(seconds.publish(card(0, path_)));
}

TEST_F(TransferBootstrap, WhoIsRefusedLeavesTheJobThatIsThereAlone) {
  ASSERT_FALSE(directory_.publish(card(0, path_)));
  Directory second;
  ASSERT_FALSE(second.open(path_));
  const Card refused = card(0, path_);
  ASSERT_EQ(second.publish(refused).code, EADDRINUSE);
  second.leave(refused, [](Peer) { return false; });
  EXPECT_FALSE(directory_.has_left(0));
  ASSERT_FALSE(directory_.publish(card(1, path_)));
  EXPECT_FALSE(collect());
}

TEST_F(TransferBootstrap, ACardOfTheJobBeforeIsNotTaken) {
  const Card first = card(0, path_), second = card(1, path_);
  ASSERT_FALSE(directory_.publish(first));
  Directory others;
  ASSERT_FALSE(others.open(path_));
  ASSERT_FALSE(others.publish(second));
  ASSERT_FALSE(collect());
  ASSERT_FALSE(others.collect(2, 0, cards_));
  directory_.leave(first, [](Peer) { return false; });
  // Rank 0 is in its next job before rank 1 has left this one.
  Directory next;
  ASSERT_FALSE(next.open(path_));
  const Card again = card(0, path_);
  ASSERT_FALSE(next.publish(again));
  const std::vector<std::uint64_t> before = {first.token, second.token};
  EXPECT_EQ(next.collect(2, 0, cards_, before).code, ETIMEDOUT);
  others.leave(second, [](Peer) { return false; });
  EXPECT_EQ(next.collect(2, 0, cards_, before).code, ETIMEDOUT);
  EXPECT_FALSE(next.has_left(1));
  const Card new_second = card(1, path_);
  Directory seconds_next;
  ASSERT_FALSE(seconds_next.open(path_));
  ASSERT_FALSE(seconds_next.publish(new_second));
  ASSERT_FALSE(next.collect(2, 0, cards_, before));
  EXPECT_EQ(cards_[0].token, again.token);
  EXPECT_EQ(cards_[1].token, new_second.token);
}

TEST_F(TransferBootstrap, ADirectoryThatTheLastOneRemovedIsMadeAgain) {
  Directory next;
  ASSERT_FALSE(next.open(path_));
  const Card first = card(0, path_, 1);
  ASSERT_FALSE(directory_.publish(first));
  directory_.leave(first, [](Peer) { return false; });
  ASSERT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(next.publish(card(0, path_, 1)));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/0.card"));
}

TEST_F(TransferBootstrap, JobsOfAProcessMeetInOneDirectory) {
  constexpr int kJobs = 3;
  const auto process = [this](Peer rank) {
    std::vector<std::unique_ptr<Meeting>> jobs;
    for (int turn = 0; turn < 2 * kJobs; ++turn) {
      if (turn >= kJobs) {  // the second of three ends; its number is the next one's
        jobs[1]->leave([](Peer) { return false; });
        jobs.erase(jobs.begin() + 1);
      }
      jobs.push_back(std::make_unique<Meeting>(Membership{rank, 2, path_}, 10 * kSecond));
      std::vector<std::uint64_t> words;
      const Error error = jobs.back()->meet(10 * static_cast<std::uint64_t>(turn) + rank, words);
      ASSERT_FALSE(error) << error.message;
      EXPECT_EQ(words, (std::vector<std::uint64_t>{10U * turn, 10U * turn + 1}));
    }
    for (const auto& job : jobs) EXPECT_FALSE(job->directory().has_left(1 - rank));
    std::vector<std::uint64_t> words;
    Meeting last({rank, 2, path_}, 10 * kSecond);
    ASSERT_FALSE(last.meet(0, words)) << "none of them leaves before";
    for (const auto& job : jobs) job->leave([](Peer) { return false; });
    last.leave([](Peer) { return false; });
  };
  std::thread other(process, 1);
  process(0);
  other.join();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TransferBootstrap, ForeignAndDamagedCardsAreErrors) {
  ASSERT_FALSE(directory_.publish(card(0, path_)));
  const std::string good = card_to_bytes(card(1, path_));
  write("1.card", good);
  EXPECT_FALSE(collect());
  write("1.card", good.substr(0, good.size() - 1));
  EXPECT_EQ(collect().code, EBADMSG);
  write("1.card", "");
  EXPECT_EQ(collect().code, EBADMSG);
  write("1.card", good + std::string(100000, 'x'));
  EXPECT_EQ(collect().code, EBADMSG);
  write("1.card", card_to_bytes(card(0, path_)));
  EXPECT_EQ(collect().code, EBADMSG) << "another rank's";
  write("1.card", card_to_bytes(card(1, path_, 3)));
  EXPECT_EQ(collect().code, EBADMSG) << "another job's";
  write("1.card", good, 0622);
  EXPECT_EQ(collect().code, EPERM);
  std::filesystem::remove(path_ + "/1.card");
  ASSERT_EQ(::symlink("0.card", (path_ + "/1.card").c_str()), 0);
  EXPECT_EQ(collect().code, ELOOP);
  std::filesystem::remove(path_ + "/1.card");
  ASSERT_EQ(::mkfifo((path_ + "/1.card").c_str(), 0600), 0);
  EXPECT_EQ(collect().code, EPERM) << "opening it must not wait";
}

TEST_F(TransferBootstrap, ADirectoryThatOthersMayWriteIsRefused) {
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  Directory open;
  EXPECT_EQ(open.open(path_).code, EPERM);
  EXPECT_EQ(open.open(path_ + "/not/there").code, ENOENT);
}

TEST_F(TransferBootstrap, ANameThatAnotherUserHoldsIsPassedOver) {
  const std::string name = path_ + "-of-a-launcher";
  // As if of others: a directory that all may write to, a file, a link.
  ASSERT_EQ(::mkdir(name.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(name.c_str(), 0777), 0);
  write("../job-of-a-launcher.1", "");
  ASSERT_EQ(::symlink(parent_.path().c_str(), (name + ".2").c_str()), 0);
  Directory first, second, named;
  ASSERT_FALSE(first.open(name, 64));
  ASSERT_FALSE(first.publish(card(0, name)));
  // A second process finds the first one's, although a name before it is free by now.
  std::filesystem::remove(name + ".1");
  ASSERT_FALSE(second.open(name, 64));
  ASSERT_FALSE(second.publish(card(1, name)));
  EXPECT_TRUE(std::filesystem::exists(name + ".3/0.card"));
  EXPECT_TRUE(std::filesystem::exists(name + ".3/1.card"));
  EXPECT_EQ(named.open(name).code, EPERM) << "a name that the user gave is the only one";
}

TEST(TransferCard, AnyBytesAreRefusedOrWhole) {
  const std::string good = card_to_bytes(card(1, "/"));
  std::mt19937 random(3);
  Card read;
  ASSERT_FALSE(card_from_bytes(good, read));
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 8));
    if (bytes == good) continue;
    EXPECT_EQ(card_from_bytes(bytes, read).code, EBADMSG);
  }
}

TEST(TransferJob, TheLaunchersVariablesNameIt) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID"})
    ::unsetenv(name);
  Membership job;
  EXPECT_EQ(membership_of_launcher(job).code, EINVAL);
  ::setenv("PMI_RANK", "3", 1);
  ::setenv("PMI_SIZE", "3", 1);
  EXPECT_EQ(membership_of_launcher(job).code, EINVAL) << "there is no rank 3 of 3";
  ::setenv("PMI_SIZE", "4", 1);
  ::setenv("XDG_RUNTIME_DIR", "/somewhere", 1);
  ASSERT_FALSE(membership_of_launcher(job));
  EXPECT_EQ(job.rank, 3u);
  EXPECT_EQ(job.peers, 4u);
  EXPECT_EQ(job.directory.rfind("/somewhere/pinion-transfer-", 0), 0u) << job.directory;
  const std::string directory = job.directory;
  ::setenv("PMI_RANK", "0", 1);
  ASSERT_FALSE(membership_of_launcher(job));
  EXPECT_EQ(job.directory, directory) << "the same for all of a job";
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "XDG_RUNTIME_DIR"}) ::unsetenv(name);
}

}  // namespace
}  // namespace pinion::transfer
