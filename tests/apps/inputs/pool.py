"""multiprocessing: four forked workers sort, and send back, arrays of 4 MiB through pipes."""
import multiprocessing as mp

import numpy as np


def work(seed):
    return np.sort(np.random.default_rng(seed).random(2**19))


if __name__ == "__main__":
    with mp.get_context("fork").Pool(4) as pool:
        print(f"{sum(a.sum() for a in pool.map(work, range(16))):.6f}")
