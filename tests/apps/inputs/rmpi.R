# Rmpi: vectors of 8 MiB go around, and are reduced.
suppressMessages(library(Rmpi))
rank <- mpi.comm.rank(0)
size <- mpi.comm.size(0)
x <- as.double(seq_len(2^20)) + rank
for (turn in 1:4) {
  x <- mpi.sendrecv(x, 2, (rank + 1) %% size, 1, double(2^20), 2, (rank + size - 1) %% size, 1, comm = 0)
}
s <- mpi.allreduce(x, type = 2, op = "sum", comm = 0)
if (rank == 0) cat("sum", format(sum(s), digits = 15), "\n")
invisible(mpi.quit())
