// Advection and diffusion solved by 3-D Fourier transforms with a slab decomposition, in the shape of the NAS
// benchmark FT: three complex arrays of which at most two take part in any MPI_Alltoall, and u0 only during
// set-up. A cache that leaves memory pinned therefore holds all three, although one of them is always idle.
//
//   set-up:          u1 = initial condition, u0 = its forward transform           (one transpose, u0 -> u1)
//   each iteration:  u1 = u0 carried on to time t, u2 = the inverse transform of u1  (one transpose, u2 ->
//   u1)
//
// The initial condition is a product f(x) g(y) h(z) of pseudo-random lines. The effect of time is a product
// too. So the exact answer at any time is the product of three lines, each found by a direct O(n^2) sum.
// Where NAS takes a checksum, every point of every iteration is compared with it. Every coefficient of the
// spectrum is nonzero, so any loss or swap is noticed.
#include <fftw3.h>

#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "example.h"

namespace {

using Complex = std::complex<double>;

constexpr double kAlpha = 1e-6;                                // diffusion
constexpr std::array<double, 3> kVelocity{1e-3, -2e-3, 3e-3};  // along x, y, z, in lengths of the grid
constexpr double kTolerance = 1e-10;

// Without the checks for infinities that operator* has to make.
Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

struct Grid {
  int nx, ny, nz;
  std::size_t points() const { return std::size_t(nx) * ny * nz; }
};

// Plain malloc, as an application would: larger than the mmap threshold, not aligned to a page.
class Array {
 public:
  explicit Array(std::size_t count) : data_(static_cast<Complex*>(std::malloc(count * sizeof(Complex)))) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::fill_n(data_, count, Complex{});
  }
  ~Array() { std::free(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator Complex*() const { return data_; }

 private:
  Complex* data_;
};

// A batch of line transforms in place by FFTW, unscaled. sign is that of the exponent: FFTW_FORWARD or
// FFTW_BACKWARD.
class LineTransforms {
 public:
  // `lines` lines of `length` points, `stride` apart within a line, `distance` apart from line to line.
  // Planned on `like` (nothing is read or written), whose alignment every array of a later call shares.
  LineTransforms(Complex* like, int length, int lines, int stride, int distance, int sign) {
    auto* data = reinterpret_cast<fftw_complex*>(like);
    plan_ = fftw_plan_many_dft(1, &length, lines, data, nullptr, stride, distance, data, nullptr, stride,
                               distance, sign, FFTW_ESTIMATE);
    if (plan_ == nullptr) throw std::runtime_error("FFTW made no plan");
  }
  ~LineTransforms() { fftw_destroy_plan(plan_); }
  LineTransforms(const LineTransforms&) = delete;
  LineTransforms& operator=(const LineTransforms&) = delete;

  void operator()(Complex* data) const {
    fftw_execute_dft(plan_, reinterpret_cast<fftw_complex*>(data), reinterpret_cast<fftw_complex*>(data));
  }

 private:
  fftw_plan plan_;
};

// The transforms of this rank's part of the grid in one direction.
struct Transforms {
  Transforms(Complex* like, Grid grid, int planes, std::size_t pencils, int sign)
      : grid(grid),
        planes(planes),
        along_x(like, grid.nx, grid.ny * planes, 1, grid.nx, sign),
        along_y_of_plane(like, grid.ny, grid.nx, grid.nx, 1, sign),
        along_z(like, grid.nz, static_cast<int>(pencils), 1, grid.nz, sign) {}

  void along_y(Complex* data) const {
    for (int z = 0; z < planes; ++z) along_y_of_plane(data + std::size_t(z) * grid.nx * grid.ny);
  }

  const Grid grid;
  const int planes;
  const LineTransforms along_x, along_y_of_plane, along_z;
};

// Transposes a rows x columns matrix whose rows are spread over the ranks: `from` holds this rank's rows and
// is overwritten, `to` receives this rank's columns as rows. Returns the seconds inside of MPI.
double transpose(Complex* from, Complex* to, std::size_t rows, std::size_t columns, int ranks) {
  const std::size_t my_rows = rows / ranks, my_columns = columns / ranks;

  constexpr std::size_t kTile = 16;
  for (std::size_t r0 = 0; r0 < my_rows; r0 += kTile)
    for (std::size_t c0 = 0; c0 < columns; c0 += kTile)
      for (std::size_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (std::size_t r = r0; r < std::min(r0 + kTile, my_rows); ++r)
          to[c * my_rows + r] = from[r * columns + c];

  const int block = static_cast<int>(my_rows * my_columns);
  const double begin = MPI_Wtime();
  MPI_Alltoall(to, block, MPI_C_DOUBLE_COMPLEX, from, block, MPI_C_DOUBLE_COMPLEX, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - begin;

  for (int source = 0; source < ranks; ++source)
    for (std::size_t c = 0; c < my_columns; ++c)
      std::copy_n(from + (source * my_columns + c) * my_rows, my_rows, to + c * rows + source * my_rows);
  return seconds;
}

// Indices above n/2 are the negative wave numbers.
double wave_number(int index, int n) { return index <= n / 2 ? index : index - n; }

// The effect of time t on a wave: diffusion damps it by the square of its wave vector, advection turns its
// phase.
Complex evolution(double square_of_wave_vector, double along_velocity, int t) {
  return std::polar(std::exp(-4.0 * kAlpha * std::numbers::pi * std::numbers::pi * square_of_wave_vector * t),
                    -2.0 * std::numbers::pi * along_velocity * t);
}

// One factor of the initial condition and its evolution, by direct sums.
class Line {
 public:
  Line(int n, double velocity, std::uint64_t name)
      : n_(n), velocity_(velocity), initial_(n), spectrum_(n), root_(n) {
    for (int i = 0; i < n; ++i) root_[i] = std::polar(1.0, 2.0 * std::numbers::pi * i / n);
    for (int i = 0; i < n; ++i) initial_[i] = {unit(name, 2 * i), unit(name, 2 * i + 1)};
    for (int k = 0; k < n; ++k)
      for (int i = 0; i < n; ++i) spectrum_[k] += initial_[i] * std::conj(root(k, i)) / double(n);
  }
  const std::vector<Complex>& initial() const { return initial_; }

  std::vector<Complex> at_time(int t) const {
    std::vector<Complex> line(n_);
    for (int k = 0; k < n_; ++k) {
      const double wave = wave_number(k, n_);
      const Complex amplitude = spectrum_[k] * evolution(wave * wave, velocity_ * wave, t);
      for (int i = 0; i < n_; ++i) line[i] += amplitude * root(k, i);
    }
    return line;
  }

 private:
  static double unit(std::uint64_t name, int index) {
    return 0.5 + static_cast<double>(example::pattern_word(name, index) >> 11) * 0x1p-53;
  }
  const Complex& root(int k, int i) const { return root_[std::size_t(k) * i % n_]; }

  int n_;
  double velocity_;
  std::vector<Complex> initial_, spectrum_, root_;
};

class Solver {
 public:
  Solver(const example::Mpi& mpi, Grid grid)
      : mpi_(mpi),
        grid_(grid),
        planes_(grid.nz / mpi.size),
        pencils_(std::size_t(grid.nx) * grid.ny / mpi.size),
        u0_(grid.points() / mpi.size),
        u1_(grid.points() / mpi.size),
        u2_(grid.points() / mpi.size),
        exact_{Line(grid.nx, kVelocity[0], 1), Line(grid.ny, kVelocity[1], 2),
               Line(grid.nz, kVelocity[2], 3)} {}

  void set_up() {
    const std::array<std::vector<Complex>, 3> lines{exact_[0].initial(), exact_[1].initial(),
                                                    exact_[2].initial()};
    for_each_point(
        [&](std::size_t at, int x, int y, int z) { u1_[at] = lines[0][x] * lines[1][y] * lines[2][z]; });

    const Transforms forward(u1_, grid_, planes_, pencils_, FFTW_FORWARD);
    forward.along_x(u1_);
    forward.along_y(u1_);
    communication_ += transpose(u1_, u0_, grid_.nz, std::size_t(grid_.nx) * grid_.ny, mpi_.size);
    forward.along_z(u0_);
  }

  // u2 = the answer at time t.
  void iterate(int t) {
    evolve(t);
    back_.along_z(u1_);
    communication_ += transpose(u1_, u2_, std::size_t(grid_.nx) * grid_.ny, grid_.nz, mpi_.size);
    back_.along_y(u2_);
    back_.along_x(u2_);
  }

  double communication_seconds() const { return communication_; }

  // Whether every point of this rank is the exact answer at time t.
  bool is_exact(int t) const {
    const std::array lines = exact_lines(t);
    const double scale = 1.0 / double(grid_.points());
    bool exact_everywhere = true;
    for_each_point([&](std::size_t at, int x, int y, int z) {
      const Complex exact = times(times(lines[1][y], lines[2][z]), lines[0][x]);
      exact_everywhere &= std::norm(u2_[at] * scale - exact) < kTolerance * kTolerance;
    });
    return exact_everywhere;
  }

 private:
  // This rank's points in the layout of space: planes of z, x fastest.
  template <class Body>
  void for_each_point(Body body) const {
    std::size_t at = 0;
    for (int z = mpi_.rank * planes_; z < (mpi_.rank + 1) * planes_; ++z)
      for (int y = 0; y < grid_.ny; ++y)
        for (int x = 0; x < grid_.nx; ++x) body(at++, x, y, z);
  }

  // u1 = the spectrum at time t. Its layout is pencils along z, one for each (y, x).
  void evolve(int t) {
    for (std::size_t pencil = 0, at = 0; pencil < pencils_; ++pencil) {
      const std::size_t xy = mpi_.rank * pencils_ + pencil;
      const double kx = wave_number(int(xy % grid_.nx), grid_.nx);
      const double ky = wave_number(int(xy / grid_.nx), grid_.ny);
      for (int z = 0; z < grid_.nz; ++z, ++at) {
        const double kz = wave_number(z, grid_.nz);
        u1_[at] = times(u0_[at], evolution(kx * kx + ky * ky + kz * kz,
                                           kVelocity[0] * kx + kVelocity[1] * ky + kVelocity[2] * kz, t));
      }
    }
  }

  std::array<std::vector<Complex>, 3> exact_lines(int t) const {
    return {exact_[0].at_time(t), exact_[1].at_time(t), exact_[2].at_time(t)};
  }

  const example::Mpi& mpi_;
  Grid grid_;
  int planes_;           // of z, on this rank
  std::size_t pencils_;  // along z, on this rank
  Array u0_, u1_, u2_;
  std::array<Line, 3> exact_;
  double communication_ = 0;
  const Transforms back_{u1_, grid_, planes_, pencils_, FFTW_BACKWARD};
};

std::optional<Grid> parse_grid(const std::string& text) {
  Grid grid{};
  int end = 0;
  if (std::sscanf(text.c_str(), "%dx%dx%d%n", &grid.nx, &grid.ny, &grid.nz, &end) != 3) return std::nullopt;
  if (std::size_t(end) != text.size()) return std::nullopt;
  for (const int n : {grid.nx, grid.ny, grid.nz})
    if (n < 2 || n > 1024) return std::nullopt;
  return grid;
}

}  // namespace

int main(int argc, char** argv) {
  example::Mpi mpi(argc, argv);

  CLI::App app(
      "3-D FFT of an advection-diffusion equation in the shape of NAS FT: MPI_Alltoall between two of three "
      "large arrays.",
      "fft3d");
  std::string size = "256x256x128";
  int iterations = 25;
  app.add_option("--grid", size, "points along x, y and z: NXxNYxNZ")->capture_default_str();
  example::add_count(app, "--iterations", iterations, "time steps");
  if (const auto status = example::parse(mpi, app, argc, argv)) return *status;

  const std::optional<Grid> grid = parse_grid(size);
  if (!grid)
    return example::usage_error(mpi, app, "--grid: " + size + " is not NXxNYxNZ, each from 2 to 1024");
  if (grid->nz % mpi.size != 0 || std::size_t(grid->nx) * grid->ny % mpi.size != 0)
    return example::usage_error(mpi, app, "--grid: NZ and NX*NY must be multiples of the number of ranks");

  Solver solver(mpi, *grid);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  solver.set_up();
  bool right = true;
  for (int t = 1; t <= iterations; ++t) {
    solver.iterate(t);
    right &= solver.is_exact(t);
  }
  const double seconds = MPI_Wtime() - start;

  if (mpi.rank == 0)
    std::printf(
        "fft3d: %s, %d iterations on %d ranks: %.3f s, of which communication %.3f s; %d all-to-alls of %zu "
        "bytes a rank\n",
        size.c_str(), iterations, mpi.size, seconds, solver.communication_seconds(), iterations + 1,
        grid->points() / mpi.size * sizeof(Complex));
  return example::conclude(mpi, app, right);
}
