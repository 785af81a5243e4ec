// Nonblocking and persistent operations: every way to start them, to complete them and to lose them. Two
// ranks.
#include <algorithm>
#include <numeric>
#include <random>

#include "forms.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
constexpr int kCount = 20011;  // 80 KB
constexpr int kMessages = 12;
int me, other;

/// The buffers of a round: `kMessages` out, as many in.
struct Buffers {
  std::vector<std::vector<int>> out, in;
  Buffers() {
    for (int i = 0; i < kMessages; ++i) {
      out.push_back(message(kCount, me, i));
      in.emplace_back(kCount);
    }
  }
  void check() const {
    for (int i = 0; i < kMessages; ++i)
      CHECK(holds(out[static_cast<std::size_t>(i)], me, i) &&
            holds(in[static_cast<std::size_t>(i)], other, i));
  }
};

using Isend = int (*)(const void*, count_t, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

// Receives first; then they are posted everywhere, as ready mode requires.
std::vector<MPI_Request> start(Buffers& buffers, Isend isend) {
  std::vector<MPI_Request> requests(2 * kMessages);
  for (int i = 0; i < kMessages; ++i) MPI(Irecv)
  (buffers.in[static_cast<std::size_t>(i)].data(), kCount, MPI_INT, other, i, kWorld,
   &requests[static_cast<std::size_t>(i)]);
  MPI_Barrier(kWorld);
  for (int i = 0; i < kMessages; ++i)
    isend(buffers.out[static_cast<std::size_t>(i)].data(), kCount, MPI_INT, other, i, kWorld,
          &requests[static_cast<std::size_t>(kMessages + i)]);
  return requests;
}

using Complete = void (*)(std::vector<MPI_Request>&);

const Complete kCompletions[] = {
    [](std::vector<MPI_Request>& r) {
      for (auto& request : r) MPI_Wait(&request, MPI_STATUS_IGNORE);
    },
    [](std::vector<MPI_Request>& r) {
      MPI_Waitall(static_cast<int>(r.size()), r.data(), MPI_STATUSES_IGNORE);
    },
    [](std::vector<MPI_Request>& r) {
      std::vector<MPI_Status> statuses(r.size());
      MPI_Waitall(static_cast<int>(r.size()), r.data(), statuses.data());
      for (int i = 0; i < kMessages; ++i) CHECK(statuses[static_cast<std::size_t>(i)].MPI_TAG == i);
    },
    [](std::vector<MPI_Request>& r) {
      for (std::size_t n = 0; n < r.size(); ++n) {
        int index = -1;
        MPI_Waitany(static_cast<int>(r.size()), r.data(), &index, MPI_STATUS_IGNORE);
        CHECK(index >= 0 && r[static_cast<std::size_t>(index)] == MPI_REQUEST_NULL);
      }
      int index = 0;
      MPI_Waitany(static_cast<int>(r.size()), r.data(), &index, MPI_STATUS_IGNORE);
      CHECK(index == MPI_UNDEFINED);
    },
    [](std::vector<MPI_Request>& r) {
      std::vector<int> indices(r.size());
      for (int done = 0, n = 0; done < static_cast<int>(r.size()); done += n)
        MPI_Waitsome(static_cast<int>(r.size()), r.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
      int n = 0;
      MPI_Waitsome(static_cast<int>(r.size()), r.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
      CHECK(n == MPI_UNDEFINED);
    },
    [](std::vector<MPI_Request>& r) {
      for (auto& request : r)
        for (int flag = 0; !flag;) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    },
    [](std::vector<MPI_Request>& r) {
      for (int flag = 0; !flag;)
        MPI_Testall(static_cast<int>(r.size()), r.data(), &flag, MPI_STATUSES_IGNORE);
    },
    [](std::vector<MPI_Request>& r) {
      for (std::size_t done = 0; done < r.size();) {
        int flag = 0, index = -1;
        MPI_Testany(static_cast<int>(r.size()), r.data(), &index, &flag, MPI_STATUS_IGNORE);
        done += flag ? 1 : 0;
      }
    },
    [](std::vector<MPI_Request>& r) {
      std::vector<int> indices(r.size());
      for (int done = 0; done < static_cast<int>(r.size());) {
        int n = 0;
        MPI_Testsome(static_cast<int>(r.size()), r.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
        done += n;
      }
    },
};

void every_completion() {
  constexpr Isend kModes[] = {MPI(Isend), MPI(Issend), MPI(Irsend)};
  std::size_t mode = 0;
  for (const Complete complete : kCompletions) {
    Buffers buffers;
    auto requests = start(buffers, kModes[mode++ % 3]);
    complete(requests);
    for (const MPI_Request request : requests) CHECK(request == MPI_REQUEST_NULL);
    buffers.check();
  }
}

using SendInit = int (*)(const void*, count_t, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

void persistent(SendInit send_init, Complete complete) {
  Buffers buffers;
  std::vector<MPI_Request> requests(2 * kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) {
    MPI(Recv_init)(buffers.in[i].data(), kCount, MPI_INT, other, static_cast<int>(i), kWorld, &requests[i]);
    send_init(buffers.out[i].data(), kCount, MPI_INT, other, static_cast<int>(i), kWorld,
              &requests[kMessages + i]);
  }
  for (int round = 0; round < 4; ++round) {
    for (auto& in : buffers.in) in.assign(kCount, 0);
    const std::vector<MPI_Request> before = requests;
    if (round % 2) {
      for (std::size_t i = 0; i < kMessages; ++i) MPI_Start(&requests[i]);
    } else {
      MPI_Startall(kMessages, requests.data());
    }
    MPI_Barrier(kWorld);
    MPI_Startall(kMessages, requests.data() + kMessages);
    complete(requests);
    CHECK(requests == before);  // they stay, inactive
    buffers.check();
  }
  // Inactive: waiting returns at once, as often as one likes.
  MPI_Waitall(2 * kMessages, requests.data(), MPI_STATUSES_IGNORE);
  for (auto& request : requests) MPI_Request_free(&request);
  CHECK(requests[0] == MPI_REQUEST_NULL);
}

// Freed while the operation goes on: it completes all the same, unreported. The reply shows it.
void freed_while_active() {
  for (int round = 0; round < 3; ++round) {
    const auto out = message(kCount, me, 40 + round);
    std::vector<int> in(kCount);
    MPI_Request nonblocking, kept, receive;
    MPI(Irecv)(in.data(), kCount, MPI_INT, other, 1, kWorld, &receive);
    MPI(Isend)(out.data(), kCount, MPI_INT, other, 1, kWorld, &nonblocking);
    MPI_Request_free(&nonblocking);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 40 + round));
    MPI_Barrier(kWorld);

    in.assign(kCount, 0);
    MPI(Irecv)(in.data(), kCount, MPI_INT, other, 2, kWorld, &receive);
    MPI(Send_init)(out.data(), kCount, MPI_INT, other, 2, kWorld, &kept);
    MPI_Start(&kept);
    MPI_Request_free(&kept);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 40 + round));
    MPI_Barrier(kWorld);
  }
}

void nobody_and_nothing() {
  std::vector<int> data(kCount, 3);
  MPI_Request requests[6];
  MPI(Isend)(data.data(), kCount, MPI_INT, MPI_PROC_NULL, 0, kWorld, &requests[0]);
  MPI(Irecv)(data.data(), kCount, MPI_INT, MPI_PROC_NULL, 0, kWorld, &requests[1]);
  MPI(Irecv)(nullptr, 0, MPI_INT, other, 3, kWorld, &requests[2]);
  MPI(Isend)(nullptr, 0, MPI_INT, other, 3, kWorld, &requests[3]);
  MPI(Recv_init)(data.data(), kCount, MPI_INT, MPI_PROC_NULL, 0, kWorld, &requests[4]);
  MPI(Send_init)(data.data(), 0, MPI_INT, MPI_PROC_NULL, 0, kWorld, &requests[5]);
  MPI_Startall(2, requests + 4);
  MPI_Waitall(6, requests, MPI_STATUSES_IGNORE);
  CHECK(data[0] == 3 && data[kCount - 1] == 3);
  MPI_Request_free(&requests[4]);
  MPI_Request_free(&requests[5]);
  MPI_Request none = MPI_REQUEST_NULL;
  MPI_Wait(&none, MPI_STATUS_IGNORE);
  MPI_Waitall(0, nullptr, MPI_STATUSES_IGNORE);
}

// A thousand at once, completed in random order by all kinds of completion calls.
void many() {
  constexpr int kMany = 500, kSmall = 1500;
  std::vector<std::vector<int>> out, in(kMany, std::vector<int>(kSmall));
  std::vector<MPI_Request> requests(2 * kMany);
  for (int i = 0; i < kMany; ++i) {
    out.push_back(message(kSmall, me, i));
    MPI(Irecv)
    (in[static_cast<std::size_t>(i)].data(), kSmall, MPI_INT, other, i, kWorld,
     &requests[static_cast<std::size_t>(i)]);
  }
  for (int i = kMany; i-- > 0;) MPI(Isend)
  (out[static_cast<std::size_t>(i)].data(), kSmall, MPI_INT, other, i, kWorld,
   &requests[static_cast<std::size_t>(kMany + i)]);
  std::mt19937 random(static_cast<unsigned>(me));
  std::shuffle(requests.begin(), requests.end(), random);
  for (int i = 0; i < 100; ++i) MPI_Wait(&requests[random() % requests.size()], MPI_STATUS_IGNORE);
  for (int i = 0; i < 300; ++i) {
    int index, flag;
    MPI_Testany(2 * kMany, requests.data(), &index, &flag, MPI_STATUS_IGNORE);
  }
  MPI_Waitall(kMany, requests.data(), MPI_STATUSES_IGNORE);
  MPI_Waitall(kMany, requests.data() + kMany, MPI_STATUSES_IGNORE);
  for (int i = 0; i < kMany; ++i) CHECK(holds(in[static_cast<std::size_t>(i)], other, i));
}

// Errors that are returned: a message too long for its receive, completed by each call in turn.
void truncated(int (*wait)(MPI_Request*)) {
  MPI_Comm_set_errhandler(kWorld, MPI_ERRORS_RETURN);
  for (int round = 0; round < 3; ++round) {
    const auto out = message(kCount, me, 60);
    std::vector<int> in(kCount);
    MPI_Request receive, send;
    MPI(Irecv)(in.data(), kCount / 2, MPI_INT, other, 4, kWorld, &receive);
    MPI_Barrier(kWorld);
    MPI(Isend)(out.data(), kCount, MPI_INT, other, 4, kWorld, &send);
    CHECK(wait(&receive) != MPI_SUCCESS);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Barrier(kWorld);
    // This memory serves again.
    MPI(Sendrecv)
    (out.data(), kCount, MPI_INT, other, 5, in.data(), kCount, MPI_INT, other, 5, kWorld, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 60));
  }
  // Calls that fail before they look at any request leave their results undefined.
  int index = 1 << 30, flag = 1;
  CHECK(MPI_Waitsome(-1, nullptr, &index, nullptr, MPI_STATUSES_IGNORE) != MPI_SUCCESS);
  CHECK(MPI_Testany(-1, nullptr, &index, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS);
  std::vector<int> data(kCount);
  CHECK(MPI(Send)(data.data(), kCount, MPI_INT, 77, 0, kWorld) != MPI_SUCCESS);
  MPI_Request unmade;
  CHECK(MPI(Isend)(data.data(), kCount, MPI_INT, 77, 0, kWorld, &unmade) != MPI_SUCCESS);
  MPI_Comm_set_errhandler(kWorld, MPI_ERRORS_ARE_FATAL);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  other = 1 - me;
  every_completion();
  every_completion();
  persistent(MPI(Send_init), kCompletions[1]);
  persistent(MPI(Ssend_init), kCompletions[0]);
  persistent(MPI(Rsend_init), kCompletions[6]);
  freed_while_active();
  nobody_and_nothing();
  many();
  truncated([](MPI_Request* request) { return MPI_Wait(request, MPI_STATUS_IGNORE); });
  truncated([](MPI_Request* request) { return MPI_Waitall(1, request, MPI_STATUSES_IGNORE); });
  truncated([](MPI_Request* request) {
    int index;
    return MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
  });
  truncated([](MPI_Request* request) {
    int done, index;
    return MPI_Waitsome(1, request, &done, &index, MPI_STATUSES_IGNORE);
  });
  return finish();
}
