#!/usr/bin/env python3
"""What PyTorch programs rely on, a line a check: the lines are the same with and without Pinion.

  torch_training.py [--device cpu]

A training loop whose DataLoader forks workers each epoch; a captured graph that is replayed over new inputs; non_blocking copies
whose source is overwritten; is_pinned; streams that wait; memory that the program registers by itself."""
import argparse
import hashlib
import os
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


def digest(tensor):
    return hashlib.sha256(bytes(tensor.detach().cpu().contiguous().view(torch.uint8).flatten().tolist())).hexdigest()[:16]


def say(what, value):
    print(f"{what}: {value}", flush=True)


class Samples(Dataset):
    def __init__(self, count, width):
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.rand(count, width, generator=generator)
        self.targets = self.inputs.sum(dim=1, keepdim=True) / width

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return self.inputs[i], self.targets[i]


def training(device):
    torch.manual_seed(3)
    width = 4096
    data = Samples(1024, width)
    model = torch.nn.Sequential(torch.nn.Linear(width, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    for pinned in (False, True) if device.type == "cuda" else (False,):
        for epoch in range(3):
            total = 0.
            for inputs, targets in DataLoader(data, batch_size=256, num_workers=2, pin_memory=pinned, multiprocessing_context="fork"):
                inputs, targets = inputs.to(device, non_blocking=pinned), targets.to(device, non_blocking=pinned)
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
                total += loss.item()
            say(f"epoch {epoch}, pin_memory {pinned}", f"{total:.9f}")
    say("weights after training", digest(model[2].weight))


def overwritten(device):
    """A pageable source may be overwritten once to() has returned."""
    for words in (1 << 14, 1 << 18, 1 << 20, 1 << 24):
        source, right = torch.zeros(words), True
        for value in range(1, 21):
            source.fill_(float(value))
            there = source.to(device, non_blocking=True)
            source.fill_(-1.)
            right = right and there.min().item() == there.max().item() == value
        say(f"overwritten after to(), {words * 4 >> 10} KiB", "right bytes" if right else "WRONG BYTES")


def back(device):
    for words in (1 << 14, 1 << 18, 1 << 24):
        there, here, right = torch.zeros(words, device=device), torch.zeros(words), True
        for value in range(1, 21):
            there.fill_(float(value))
            here.copy_(there)
            right = right and here.min().item() == here.max().item() == value
        say(f"back into one tensor, {words * 4 >> 10} KiB", "right bytes" if right else "WRONG BYTES")


def is_pinned(device):
    tensor = torch.zeros(1 << 22)
    for _ in range(20):
        tensor.to(device)
    say("is_pinned of copied memory", tensor.is_pinned())
    pinned = tensor.pin_memory()
    say("pin_memory is another tensor", pinned.data_ptr() != tensor.data_ptr())
    say("is_pinned of pinned memory", pinned.is_pinned())


def graph(device):
    """A copy of pinned memory and a product, captured and replayed; pageable copies of others go on."""
    pinned, pageable = torch.zeros(1 << 20).pin_memory(), torch.zeros(1 << 22)
    there, result = torch.zeros(1 << 20, device=device), torch.zeros(1 << 20, device=device)
    for _ in range(10):
        pageable.to(device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        there.copy_(pinned, non_blocking=True)
        torch.mul(there, 3., out=result)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        there.copy_(pinned, non_blocking=True)
        torch.mul(there, 3., out=result)
    right = True
    for value in range(1, 21):
        pageable.fill_(float(value))
        copied = pageable.to(device)
        pinned.fill_(float(value))
        captured.replay()
        torch.cuda.synchronize()
        right = right and result.min().item() == result.max().item() == 3 * value
        right = right and copied.min().item() == copied.max().item() == value
    say("replays of a captured graph", "right bytes" if right else "WRONG BYTES")


def streams(device):
    """One stream waits for another one that is busy; a third one copies meanwhile."""
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    source, other, right = torch.zeros(1 << 22), torch.zeros(1 << 22), True
    for value in range(1, 11):
        source.fill_(float(value))
        other.fill_(float(-value))
        with torch.cuda.stream(first):
            torch.cuda._sleep(20_000_000)
            there = source.to(device, non_blocking=True)
        second.wait_stream(first)
        with torch.cuda.stream(third):
            elsewhere = other.to(device, non_blocking=True)
        with torch.cuda.stream(second):
            doubled = there * 2
        source.fill_(-7.)
        torch.cuda.synchronize()
        right = right and doubled.min().item() == doubled.max().item() == 2 * value
        right = right and elsewhere.min().item() == elsewhere.max().item() == -value
    say("streams that wait for each other", "right bytes" if right else "WRONG BYTES")


def own_register(device):
    """cudaHostRegister by the program, of memory that has been copied often."""
    runtime = torch.cuda.cudart()
    tensor = torch.zeros(1 << 22)
    for _ in range(20):
        tensor.to(device)
    say("cudaHostRegister", int(runtime.cudaHostRegister(tensor.data_ptr(), tensor.numel() * 4, 0)))
    say("is_pinned of registered memory", tensor.is_pinned())
    tensor.fill_(5.)
    there = tensor.to(device, non_blocking=True)
    torch.cuda.synchronize()
    say("a copy of it", "right bytes" if there.min().item() == there.max().item() == 5 else "WRONG BYTES")
    say("cudaHostUnregister", int(runtime.cudaHostUnregister(tensor.data_ptr())))
    say("is_pinned afterwards", tensor.is_pinned())


def threads(device):
    """Threads that copy, free and copy again."""
    wrong = []

    def work(number):
        for i in range(40):
            value = float(number * 100 + i)
            there = torch.full((1 << (14 + i % 8),), value).to(device)
            if not there.min().item() == there.max().item() == value:
                wrong.append((number, i))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    say("threads", "right bytes" if not wrong else f"WRONG BYTES {wrong[:3]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    device = torch.device(parser.parse_args().device)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(4)
    training(device)
    back(device)
    threads(device)
    if device.type == "cuda":
        for check in (overwritten, is_pinned, graph, streams, own_register):
            check(device)
    print("training: end", flush=True)


main()
