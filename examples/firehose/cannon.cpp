// Cannon's algorithm: processes form a square; each holds a block of A and one of B, multiplies them, and
// passes A to the left and B upwards, as often as the square has columns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "clients.h"

namespace gas {

namespace {

/// An element of a matrix in a round: a small integer, so that all sums are exact.
double element(unsigned matrix, std::uint64_t round, std::size_t row, std::size_t column) {
  return static_cast<double>(pattern_word(2 * round + matrix, row << 32 | column) % 7) - 3;
}

class Cannon {
 public:
  Cannon(Job& job, const CannonOptions& options, unsigned side)
      : job_(job),
        options_(options),
        side_(side),
        row_(job.self() / side),
        column_(job.self() % side),
        n_(options.block),
        bytes_(n_ * n_ * sizeof(double)),
        product_(n_ * n_) {}

  /// The heap holds two blocks of each matrix.
  static std::size_t heap_bytes(const CannonOptions& options) {
    return 4 * options.block * options.block * sizeof(double);
  }

  void load(std::uint64_t round) {
    for (unsigned matrix = 0; matrix < 2; ++matrix)
      for (std::size_t i = 0; i < n_; ++i)
        for (std::size_t j = 0; j < n_; ++j)
          block(matrix, 0)[i * n_ + j] = element(matrix, round, row_ * n_ + i, column_ * n_ + j);
    std::fill(product_.begin(), product_.end(), 0.0);
    now_ = 1;
  }
  /// Row r of A moves left by r, column c of B up by c: into the blocks of the first step.
  void skew() {
    pass(0, 0, 1, row_, (column_ + side_ - row_) % side_);
    pass(1, 0, 1, (row_ + side_ - column_) % side_, column_);
  }
  void shift() {
    pass(0, now_, 1 - now_, row_, (column_ + side_ - 1) % side_);
    pass(1, now_, 1 - now_, (row_ + side_ - 1) % side_, column_);
  }
  void multiply() {
    const double* const a = block(0, now_);
    const double* const b = block(1, now_);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t k = 0; k < n_; ++k)
        for (std::size_t j = 0; j < n_; ++j) product_[i * n_ + j] += a[i * n_ + k] * b[k * n_ + j];
  }
  void turn() { now_ = 1 - now_; }

  /// Freivalds' check of the own block: C x = A (B x) for a random x.
  bool is_right(std::uint64_t round) const {
    const std::size_t all = side_ * n_;
    std::vector<double> x(n_), bx(all);
    for (std::size_t j = 0; j < n_; ++j)
      x[j] = static_cast<double>(pattern_word(~round, j) % (1u << 20)) - (1 << 19);
    for (std::size_t k = 0; k < all; ++k)
      for (std::size_t j = 0; j < n_; ++j) bx[k] += element(1, round, k, column_ * n_ + j) * x[j];
    for (std::size_t i = 0; i < n_; ++i) {
      double is = 0, expected = 0;
      for (std::size_t j = 0; j < n_; ++j) is += product_[i * n_ + j] * x[j];
      for (std::size_t k = 0; k < all; ++k) expected += element(0, round, row_ * n_ + i, k) * bx[k];
      if (is != expected) return false;
    }
    return true;
  }

 private:
  std::size_t offset(unsigned matrix, unsigned which) const { return (2 * matrix + which) * bytes_; }
  double* block(unsigned matrix, unsigned which) const { return job_.at<double>(offset(matrix, which)); }

  void pass(unsigned matrix, unsigned from, unsigned to, unsigned row, unsigned column) {
    const unsigned process = row * side_ + column;
    if (process == job_.self()) {
      std::memcpy(block(matrix, to), block(matrix, from), bytes_);
      return;
    }
    for (std::size_t at = 0; at < bytes_; at += options_.piece)
      job_.put(process, offset(matrix, to) + at, job_.heap() + offset(matrix, from) + at,
               std::min(options_.piece, bytes_ - at));
  }

  Job& job_;
  const CannonOptions& options_;
  const unsigned side_, row_, column_;
  const std::size_t n_, bytes_;
  std::vector<double> product_;
  unsigned now_ = 1;
};

/// Sums over all processes, in one multiplication.
std::uint64_t puts_a_round(const CannonOptions& options, std::uint64_t side) {
  const std::uint64_t bytes = options.block * options.block * sizeof(double);
  const std::uint64_t pieces = (bytes + options.piece - 1) / options.piece;
  // The skew leaves the first row of A and the first column of B in place.
  return 2 * pieces * (side * (side - 1) + (side - 1) * side * side);
}

}  // namespace

bool cannon(Job& job, const CannonOptions& options) {
  const auto side = static_cast<unsigned>(std::sqrt(job.processes()));
  const std::uint64_t puts = puts_a_round(options, side);
  const std::uint64_t rounds = puts == 0 ? 1 : std::max<std::uint64_t>(1, (options.puts + puts - 1) / puts);
  const bool idle = job.self() >= side * side;
  job.open(Cannon::heap_bytes(options));
  Cannon part(job, options, side);
  bool right = true;
  job.begin();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (!idle) part.load(round), job.barrier(), part.skew(), job.fence();
    if (idle) job.barrier();
    job.barrier();
    for (unsigned step = 0; step < side; ++step) {
      if (!idle) {
        if (step + 1 < side) part.shift();
        part.multiply();
        job.fence();
        part.turn();
      }
      job.barrier();
    }
    if (!idle && !part.is_right(round)) right = false;
  }
  job.end();
  return job.everywhere(right);
}

}  // namespace gas
