#include "player.h"

#include <algorithm>
#include <cstring>

#include "buffers.h"

namespace play {

namespace {

/// Any two messages of a run differ in it. (splitmix64's finaliser.)
std::uint64_t stamp_of(int from, int to, std::uint64_t kind, std::uint64_t number) {
  std::uint64_t z = (static_cast<std::uint64_t>(from) << 48) ^ (static_cast<std::uint64_t>(to) << 32) ^
                    (kind << 24) ^ (number + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kMessage = 0, kExchange = 1;

char* bytes_at(Address address) { return reinterpret_cast<char*>(address); }

/// At the first and the last bytes of a message.
void stamp(Range memory, std::uint64_t value) {
  const std::size_t size = std::min(sizeof value, static_cast<std::size_t>(memory.bytes()));
  std::memcpy(bytes_at(memory.begin), &value, size);
  std::memcpy(bytes_at(memory.end - size), &value, size);
}

bool is_stamped(Range memory, std::uint64_t value) {
  const std::size_t size = std::min(sizeof value, static_cast<std::size_t>(memory.bytes()));
  // Equals what stamp() leaves where both ends overlap.
  char both[2 * sizeof value];
  const std::size_t whole = std::min(sizeof both, static_cast<std::size_t>(memory.bytes()));
  std::memcpy(both, &value, size);
  std::memcpy(both + whole - size, &value, size);
  return std::memcmp(bytes_at(memory.begin), both, size) == 0 &&
         std::memcmp(bytes_at(memory.end - size), both + whole - size, size) == 0;
}

Range piece_of(Range memory, std::size_t at, std::size_t pieces) {
  const Address bytes = memory.bytes() / pieces;
  return {memory.begin + at * bytes, memory.begin + (at + 1) * bytes};
}

}  // namespace

Player::Player(const Steps& steps, const std::vector<std::uint64_t>& sites, const Computation& computation)
    : steps_(steps), computation_(computation) {
  for (std::size_t i = 0; i < sites.size(); ++i) sites_[sites[i]] = call_from(i);
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  sent_.resize(static_cast<std::size_t>(ranks));
  received_.resize(static_cast<std::size_t>(ranks));
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (const std::vector<int>& members : steps.groups) {
    MPI_Group group;
    MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &groups_.emplace_back());
    MPI_Group_free(&group);
  }
  MPI_Group_free(&world);
  exchanged_.resize(groups_.size());
}

Player::~Player() {
  for (MPI_Comm& group : groups_) MPI_Comm_free(&group);
}

bool Player::play() {
  play_part(steps_.before);
  for (std::uint64_t turn = 0; turn < steps_.turns; ++turn) play_part(steps_.turn);
  play_part(steps_.after);
  complete();
  return right_;
}

void Player::play_part(const std::vector<Step>& part) {
  for (const Step& step : part) {
    switch (step.kind) {
      case Step::Kind::compute:
        computation_.run(step.time);
        break;
      case Step::Kind::post:
      case Step::Kind::alltoall:
        prepare(step);
        sites_.at(step.site)(*this, step);
        if (step.kind == Step::Kind::alltoall) complete();
        break;
      case Step::Kind::wait:
        complete();
        break;
      case Step::Kind::unmap:
        Buffers::unmap(step.memory);
        break;
    }
  }
}

void Player::prepare(const Step& step) {
  if (step.kind == Step::Kind::alltoall) return prepare_exchange(step);
  const auto peer = static_cast<std::size_t>(step.peer);
  if (step.sends())
    stamp(step.memory, stamp_of(rank_, step.peer, kMessage, sent_[peer]++));
  else
    arrivals_.push_back({step.memory, stamp_of(step.peer, rank_, kMessage, received_[peer]++)});
}

void Player::prepare_exchange(const Step& step) {
  const std::vector<int>& members = steps_.groups[step.group];
  const std::uint64_t number = exchanged_[step.group]++;
  for (std::size_t i = 0; i < members.size(); ++i) {
    stamp(piece_of(step.memory, i, members.size()), stamp_of(rank_, members[i], kExchange, number));
    arrivals_.push_back(
        {piece_of(step.received, i, members.size()), stamp_of(members[i], rank_, kExchange, number)});
  }
}

void Player::call_mpi(const Step& step) {
  constexpr int kTag = 1;
  void* const memory = bytes_at(step.memory.begin);
  const auto bytes = static_cast<int>(step.memory.bytes());
  switch (step.call) {
    case CallKind::send:
      MPI_Send(memory, bytes, MPI_BYTE, step.peer, kTag, MPI_COMM_WORLD);
      break;
    case CallKind::receive:
      MPI_Recv(memory, bytes, MPI_BYTE, step.peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      break;
    case CallKind::send_nonblocking:
      MPI_Isend(memory, bytes, MPI_BYTE, step.peer, kTag, MPI_COMM_WORLD, &requests_.emplace_back());
      break;
    case CallKind::receive_nonblocking:
      MPI_Irecv(memory, bytes, MPI_BYTE, step.peer, kTag, MPI_COMM_WORLD, &requests_.emplace_back());
      break;
    default: {
      const auto pieces = static_cast<int>(steps_.groups[step.group].size());
      MPI_Alltoall(memory, bytes / pieces, MPI_BYTE, bytes_at(step.received.begin), bytes / pieces, MPI_BYTE,
                   groups_[step.group]);
    }
  }
}

void Player::complete() {
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  requests_.clear();
  for (const Arrival& arrival : arrivals_) right_ = is_stamped(arrival.memory, arrival.stamp) && right_;
  arrivals_.clear();
}

}  // namespace play
