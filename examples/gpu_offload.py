#!/usr/bin/env python3
"""A model whose weights lie in host memory and go to the GPU layer by layer: an unchanged PyTorch program, free of Pinion.

  gpu_offload.py [--layers N] [--mib N] [--steps N] [--results] [--device cuda|cpu]

Prints the time of each step, and `gpu_offload: verified` if every product was right. Without PyTorch or a GPU it prints one line and
exits with status 77.

  pinion run -- python3 gpu_offload.py"""
import argparse
import statistics
import sys
import time


def leave_out(why):
    print(f"gpu_offload: left out: {why}")
    sys.exit(77)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--mib", type=int, default=256, help="size of a layer's weights")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--results", action="store_true", help="bring each layer's output back to host memory, too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if min(options.layers, options.mib, options.steps) < 1:
        parser.error("sizes and counts begin at 1")
    return options


def main():
    options = parse()
    try:
        import torch
    except ImportError:
        leave_out("needs PyTorch")
    if options.device == "cuda" and not torch.cuda.is_available():
        leave_out("no GPU that PyTorch can use")
    device = torch.device(options.device)

    def now():
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    side = int((options.mib << 18) ** .5)  # words of four bytes
    weights = [torch.full((side, side), float(n + 1)) for n in range(options.layers)]
    batch = torch.ones(16, side, device=device)
    outputs = torch.zeros(options.layers, 16, side)
    times, right = [], True
    for step in range(options.steps):
        began = now()
        made = [batch @ weight.to(device) for weight in weights]
        if options.results:
            for n, output in enumerate(made):
                outputs[n].copy_(output)
            made = outputs
        times.append((now() - began) * 1e3)
        print(f"step {step + 1:3}: {times[-1]:8.1f} ms", flush=True)
        for output, weight in zip(made, weights):
            right = right and output.min().item() == output.max().item() == weight[0, 0].item() * side
        # A step of training: one layer's weights change in host memory.
        weights[step % options.layers] += 1
    print(f"median of the later half: {statistics.median(times[len(times) // 2:]):.1f} ms")
    print("gpu_offload: verified" if right else "gpu_offload: FAILED")
    return 0 if right else 1


sys.exit(main())
