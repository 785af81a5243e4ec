"""torch.distributed over gloo: two processes reduce and broadcast tensors of 16 MiB."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size, directory):
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=size)
    x = torch.arange(4 * 2**20, dtype=torch.float32) % 1024 + rank
    for _ in range(4):
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        x %= 1024
    if rank == 0:
        print(f"sum {x.double().sum().item():.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2, os.getcwd()), nprocs=2)
