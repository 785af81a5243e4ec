"""cuda.bindings.driver: a buffer that returns, and one that is new at each turn, to the GPU and back on a stream."""
import numpy as np
from cuda.bindings import driver


def ask(answer):
    error, *rest = answer
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return rest[0] if rest else None


ask(driver.cuInit(0))
context = ask(driver.cuDevicePrimaryCtxRetain(ask(driver.cuDeviceGet(0))))
ask(driver.cuCtxSetCurrent(context))
stream = ask(driver.cuStreamCreate(0))
size = 8 * 2**20
there = ask(driver.cuMemAlloc(size))
kept = np.empty(size, np.uint8)
for turn in range(12):
    kept[:] = np.random.default_rng(turn).integers(0, 256, size, np.uint8)
    ask(driver.cuMemcpyHtoDAsync(there, kept.ctypes.data, size, stream))
    new = np.zeros(size, np.uint8)
    ask(driver.cuMemcpyDtoHAsync(new.ctypes.data, there, size, stream))
    ask(driver.cuStreamSynchronize(stream))
    assert np.array_equal(new, kept)
ask(driver.cuMemFree(there))
ask(driver.cuStreamDestroy(stream))
print("verified")
