// Jacobi relaxation on a periodic 2-D grid with a wide halo: one exchange (Isend, Irecv, Waitall, or
// persistent requests), then as many sweeps as the halo is wide, so that a long computation lies between
// exchanges.
//
// A plane wave cos(kx x + ky y + phase) is an eigenvector of the sweep with the factor (cos kx + cos ky) / 2.
// The grid starts as a sum of three, which gives the exact value of every cell after any number of sweeps.
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "example.h"

namespace {

constexpr double kTolerance = 1e-10;
constexpr int kNeighbours = 2;  // of one dimension: below and above

struct Options {
  int tile = 1024, width = 8, steps = 60;
  bool persistent = false;
};

// A rectangle of cells, in coordinates of the tile (its own cells begin at 0, 0; the halo is outside).
struct Box {
  int x0, x1, y0, y1;
  int cells() const { return (x1 - x0) * (y1 - y0); }
};

class Tile {
 public:
  Tile(int side, int halo)
      : side_(side), halo_(halo), pitch_(side + 2 * halo), now_(std::size_t(pitch_) * pitch_), next_(now_) {}

  double& at(int x, int y) { return now_[index(x, y)]; }
  Box own() const { return {0, side_, 0, side_}; }

  // Uses up the halo one ring at a time: after it, only the tile's own cells are right.
  void sweep_all() {
    for (int ring = halo_ - 1; ring >= 0; --ring) {
      for (int y = -ring; y < side_ + ring; ++y) {
        const double* here = &now_[index(-ring, y)];
        double* out = &next_[index(-ring, y)];
        for (int i = 0; i < side_ + 2 * ring; ++i)
          out[i] = 0.25 * (here[i - 1] + here[i + 1] + here[i - pitch_] + here[i + pitch_]);
      }
      std::swap(now_, next_);
    }
  }

  void pack(const Box& box, double* out) const {
    for (int y = box.y0; y < box.y1; ++y) out = std::copy_n(&now_[index(box.x0, y)], box.x1 - box.x0, out);
  }
  void unpack(const Box& box, const double* in) {
    for (int y = box.y0; y < box.y1; ++y, in += box.x1 - box.x0)
      std::copy_n(in, box.x1 - box.x0, &now_[index(box.x0, y)]);
  }

 private:
  std::size_t index(int x, int y) const { return std::size_t(y + halo_) * pitch_ + x + halo_; }

  int side_, halo_, pitch_;
  std::vector<double> now_, next_;
};

// One face of the tile: the cells that the neighbour needs, those that we need, and contiguous buffers for
// both.
struct Face {
  int neighbour;
  int send_tag, receive_tag;
  Box inner, outer;
  std::vector<double> send, receive;
};

// The exchange along one dimension. Along y it carries the corners that the exchange along x brought.
class Exchange {
 public:
  Exchange(MPI_Comm grid, int dimension, const Options& options)
      : grid_(grid), persistent_(options.persistent) {
    int below = 0, above = 0;
    MPI_Cart_shift(grid, dimension, 1, &below, &above);
    const int n = options.tile, w = options.width;
    // A tag names the direction in which a message travels, as both neighbours may be the same rank.
    if (dimension == 0)
      faces_ = {Face{below, 0, 1, {0, w, 0, n}, {-w, 0, 0, n}, {}, {}},
                Face{above, 1, 0, {n - w, n, 0, n}, {n, n + w, 0, n}, {}, {}}};
    else
      faces_ = {Face{below, 2, 3, {-w, n + w, 0, w}, {-w, n + w, -w, 0}, {}, {}},
                Face{above, 3, 2, {-w, n + w, n - w, n}, {-w, n + w, n, n + w}, {}, {}}};
    for (Face& face : faces_) {
      face.send.resize(face.inner.cells());
      face.receive.resize(face.outer.cells());
    }
    if (persistent_) make_requests(MPI_Recv_init, MPI_Send_init);
  }
  ~Exchange() {
    if (!persistent_) return;
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Returns the seconds inside of MPI.
  double run(Tile& tile) {
    for (Face& face : faces_) tile.pack(face.inner, face.send.data());
    const double begin = MPI_Wtime();
    if (persistent_)
      MPI_Startall(requests_.size(), requests_.data());
    else
      make_requests(MPI_Irecv, MPI_Isend);
    MPI_Waitall(requests_.size(), requests_.data(), MPI_STATUSES_IGNORE);
    const double seconds = MPI_Wtime() - begin;
    for (Face& face : faces_) tile.unpack(face.outer, face.receive.data());
    return seconds;
  }

  std::size_t face_bytes() const { return faces_[0].send.size() * sizeof(double); }

 private:
  // Started at once or persistent, as the two calls have it.
  template <class Receive, class Send>
  void make_requests(Receive receive, Send send) {
    auto request = requests_.begin();
    for (Face& face : faces_)
      receive(face.receive.data(), face.receive.size(), MPI_DOUBLE, face.neighbour, face.receive_tag, grid_,
              &*request++);
    for (Face& face : faces_)
      send(face.send.data(), face.send.size(), MPI_DOUBLE, face.neighbour, face.send_tag, grid_, &*request++);
  }

  MPI_Comm grid_;
  bool persistent_;
  std::array<Face, kNeighbours> faces_;
  std::array<MPI_Request, 2 * kNeighbours> requests_;
};

// The exact answer: three plane waves of the global grid.
class Waves {
 public:
  Waves(int cells_x, int cells_y) {
    for (const auto [mode_x, mode_y] : {std::array{1, 2}, std::array{-3, 1}, std::array{17, 29}}) {
      const double kx = 2 * std::numbers::pi * mode_x / cells_x, ky = 2 * std::numbers::pi * mode_y / cells_y;
      waves_.push_back({kx, ky, 0.1 * mode_x + 0.7, (std::cos(kx) + std::cos(ky)) / 2});
    }
  }

  double at(int x, int y, int sweeps) const {
    double sum = 0;
    for (const Wave& wave : waves_)
      sum += std::pow(wave.factor, sweeps) * std::cos(wave.kx * x + wave.ky * y + wave.phase);
    return sum;
  }

 private:
  struct Wave {
    double kx, ky, phase, factor;
  };
  std::vector<Wave> waves_;
};

}  // namespace

int main(int argc, char** argv) {
  example::Mpi mpi(argc, argv);

  Options options;
  CLI::App app("2-D halo exchange around a Jacobi relaxation.", "halo");
  example::add_count(app, "--tile", options.tile, "cells along each side of a rank's tile");
  example::add_count(app, "--width", options.width, "width of the halo, and sweeps between exchanges");
  example::add_count(app, "--steps", options.steps, "exchanges, each followed by its sweeps");
  app.add_flag("--persistent", options.persistent, "persistent requests instead of Isend and Irecv");
  if (const auto status = example::parse(mpi, app, argc, argv)) return *status;
  if (options.width > options.tile) return example::usage_error(mpi, app, "--width: larger than --tile");
  if (options.tile > 16384) return example::usage_error(mpi, app, "--tile: larger than 16384");

  std::array<int, 2> ranks{}, place{}, periodic{1, 1};
  MPI_Comm grid = MPI_COMM_NULL;
  MPI_Dims_create(mpi.size, 2, ranks.data());
  MPI_Cart_create(MPI_COMM_WORLD, 2, ranks.data(), periodic.data(), 0, &grid);
  MPI_Cart_coords(grid, mpi.rank, 2, place.data());

  Tile tile(options.tile, options.width);
  const Waves waves(ranks[0] * options.tile, ranks[1] * options.tile);
  const int left = place[0] * options.tile, bottom = place[1] * options.tile;
  for (int y = 0; y < options.tile; ++y)
    for (int x = 0; x < options.tile; ++x) tile.at(x, y) = waves.at(left + x, bottom + y, 0);

  bool right = true;
  {
    Exchange along_x(grid, 0, options), along_y(grid, 1, options);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    double communication = 0;
    for (int step = 0; step < options.steps; ++step) {
      communication += along_x.run(tile);
      communication += along_y.run(tile);
      tile.sweep_all();
    }
    const double seconds = MPI_Wtime() - start;
    if (mpi.rank == 0)
      std::printf(
          "halo: %d steps of %d sweeps on %d x %d tiles, faces of %zu and %zu bytes, %s: %.3f s, of which "
          "communication %.3f s\n",
          options.steps, options.width, ranks[0], ranks[1], along_x.face_bytes(), along_y.face_bytes(),
          options.persistent ? "persistent" : "nonblocking", seconds, communication);
  }

  const int sweeps = options.steps * options.width;
  for (int y = 0; y < options.tile; ++y)
    for (int x = 0; x < options.tile; ++x)
      right &= std::abs(tile.at(x, y) - waves.at(left + x, bottom + y, sweeps)) < kTolerance;
  MPI_Comm_free(&grid);
  return example::conclude(mpi, app, right);
}
