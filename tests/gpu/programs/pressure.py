"""Copies buffers to the GPU while memory becomes short: an ordinary user of the CUDA driver.

    pressure.py DIR

Once its buffers have been copied often, it writes DIR/copied, and waits until DIR/go exists. Then it copies them again,
and checks what the GPU has. Prints `pressure: verified`.
"""

import ctypes
import mmap
import pathlib
import sys
import time

BYTES = 16 << 20
BUFFERS = 3
ROUNDS = 12


def must(result):
    if result:
        sys.exit(f"pressure: error {result} of the driver")


def main(directory):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(cuda.cuCtxSetCurrent(context))
    there = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(there), ctypes.c_size_t(BYTES)))
    maps = [mmap.mmap(-1, BYTES) for _ in range(BUFFERS)]
    memory = [(ctypes.c_char * BYTES).from_buffer(pages) for pages in maps]
    back = (ctypes.c_char * BYTES)()

    def copy(round_number):
        right = True
        for number, buffer in enumerate(memory):
            stamp = b"round %d of %d" % (round_number, number)
            for at in (0, BYTES // 2, BYTES - 32):
                ctypes.memmove(ctypes.byref(buffer, at), stamp, len(stamp))
            must(cuda.cuMemcpyHtoD_v2(there, buffer, ctypes.c_size_t(BYTES)))
            must(cuda.cuMemcpyDtoH_v2(back, there, ctypes.c_size_t(BYTES)))
            right = right and all(
                ctypes.string_at(ctypes.byref(back, at), len(stamp)) == stamp for at in (0, BYTES // 2, BYTES - 32)
            )
        return right

    right = all([copy(number) for number in range(ROUNDS)])
    (directory / "copied").touch()
    while not (directory / "go").exists():
        time.sleep(0.01)
    right = all([copy(number) for number in range(ROUNDS, 2 * ROUNDS)]) and right
    print("pressure: verified" if right else "pressure: FAILED")
    return not right


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
