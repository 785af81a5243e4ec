#!/usr/bin/env python3
"""Copies between host memory and the GPU as unchanged PyTorch programs make them, timed, contents checked.

  torch_copies.py weights|batches|results|small [--bytes N] [--count N] [--pin] [--device cpu]

weights: matrices in turn to the GPU, with a product each; ms a step. batches: a fresh numpy array each time; ms of its copy and of
the whole turn. results: from the GPU into one tensor; ms. small: tensors in turn; us a copy. --pin pins by hand.

The script drives it: it says `ready`, reads `go N`, prints N lines of numbers, and `verified` at the end."""
import argparse
import sys
import time

import torch


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def now(device):
    synchronize(device)
    return time.perf_counter()


class Weights:
    """Layers that lie in host memory: each step brings all of them to the GPU, one after the other."""

    def __init__(self, options, device):
        side = int((options.bytes // 4) ** .5)
        self.device, self.pin = device, options.pin
        self.values = [i + 1 for i in range(options.count)]
        self.layers = [torch.full((side, side), float(value)) for value in self.values]
        if options.pin:
            self.layers = [layer.pin_memory() for layer in self.layers]
        self.input = torch.ones(16, side, device=device)
        self.side, self.turn, self.right = side, 0, True

    def repeat(self):
        # One layer changes a step, outside of the time: a copy of old bytes would show.
        changed = self.turn % len(self.layers)
        self.turn += 1
        self.values[changed] += 1
        self.layers[changed].fill_(float(self.values[changed]))
        began = now(self.device)
        outputs = []
        for layer in self.layers:
            outputs.append(self.input @ layer.to(self.device, non_blocking=self.pin))
        took = now(self.device) - began
        for output, value in zip(outputs, self.values):
            least, most = output.min().item(), output.max().item()
            self.right = self.right and least == most == value * self.side
        return (took * 1e3,)


class Batches:
    """Arrays that numpy makes anew for each batch."""

    def __init__(self, options, device):
        import numpy
        self.numpy, self.device, self.words = numpy, device, options.bytes // 4
        self.turn, self.right = 0, True

    def repeat(self):
        self.turn += 1
        began = now(self.device)
        batch = self.numpy.full(self.words, float(self.turn), dtype=self.numpy.float32)
        made = time.perf_counter()
        there = torch.from_numpy(batch).to(self.device)
        copied = now(self.device)
        del batch
        ended = time.perf_counter()
        self.right = self.right and there.min().item() == there.max().item() == self.turn
        return (copied - made) * 1e3, (ended - began) * 1e3


class Results:
    """What the GPU computed, into one tensor of the host."""

    def __init__(self, options, device):
        self.device, self.turn, self.right = device, 0, True
        self.there = torch.zeros(options.bytes // 4, device=device)
        self.here = torch.zeros(options.bytes // 4)
        if options.pin:
            self.here = self.here.pin_memory()

    def repeat(self):
        self.turn += 1
        self.there.fill_(float(self.turn))
        began = now(self.device)
        self.here.copy_(self.there)
        took = now(self.device) - began
        self.right = self.right and self.here.min().item() == self.here.max().item() == self.turn
        return (took * 1e3,)


class Small:
    """Many small tensors in turn."""

    def __init__(self, options, device):
        self.device, self.turn, self.right = device, 0, True
        self.here = [torch.zeros(options.bytes // 4) for _ in range(options.count)]
        self.there = [torch.zeros(options.bytes // 4, device=device) for _ in range(options.count)]
        if options.pin:
            self.here = [tensor.pin_memory() for tensor in self.here]

    def repeat(self):
        self.turn += 1
        for i, tensor in enumerate(self.here):
            tensor.fill_(float(self.turn + i))
        began = now(self.device)
        for here, there in zip(self.here, self.there):
            there.copy_(here)
        took = now(self.device) - began
        for i, there in enumerate(self.there):
            self.right = self.right and there.min().item() == there.max().item() == self.turn + i
        return (took * 1e6 / len(self.here),)


CASES = {"weights": (Weights, 256 << 20, 12), "batches": (Batches, 64 << 20, 1), "results": (Results, 256 << 20, 1),
         "small": (Small, 1 << 20, 16)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    kind, size, count = CASES[options.case]
    options.bytes, options.count = options.bytes or size, options.count or count
    case = kind(options, torch.device(options.device))
    synchronize(torch.device(options.device))
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[:1] != ["go"]:
            break
        for _ in range(int(words[1])):
            print(*(f"{value:.6g}" for value in case.repeat()), flush=True)
    print("verified" if case.right else "WRONG", flush=True)
    return 0 if case.right else 1


sys.exit(main())
