"""Copies a buffer to the GPU, in a way whose line of Python a report names.

    lines.py released|held|thread|extension|foreign

The interpreter's lock is released during the copy, or held; the copy is made in a thread, by a function of an installed
package, or by code whose names a terminal had better not see. Prints `lines: copied`.
"""

import ctypes
import mmap
import sys
import threading

BYTES = 8 << 20
COPIES = 4


def must(result):
    if result:
        sys.exit(f"lines: error {result} of the driver")


def ready(cuda):
    context, device, there = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(ctypes.byref(there), ctypes.c_size_t(BYTES)))
    return context, there


class Trainer:
    def __init__(self, cuda, there, memory):
        self.cuda, self.there, self.memory = cuda, there, memory

    def step(self):
        wide = "an expression of several lines" * (
            3
        )
        assert wide
        must(
            self.cuda.cuMemcpyHtoD_v2(  # the call's line
                self.there, self.memory, ctypes.c_size_t(BYTES)
            )
        )


def main(way):
    cuda = (ctypes.PyDLL if way == "held" else ctypes.CDLL)("libcuda.so.1")
    context, there = ready(cuda)
    memory = (ctypes.c_char * BYTES).from_buffer(mmap.mmap(-1, BYTES))
    trainer = Trainer(cuda, there, memory)
    step = trainer.step
    if way == "extension":
        source = "\n\ndef to(copy, *what):\n    return copy(*what)\n"
        names = {}
        exec(compile(source, "/usr/lib/python3/dist-packages/torch/tensor.py", "exec"), names)
        size = ctypes.c_size_t(BYTES)

        def step():
            must(names["to"](cuda.cuMemcpyHtoD_v2, there, memory, size))  # the package's caller

    if way == "foreign":
        source = "def na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve(copy, *what):\n    return copy(*what)\n"
        names = {}
        exec(compile(source, "/home/\x1b[31mred.py", "exec"), names)
        size = ctypes.c_size_t(BYTES)

        def step():
            must(names["na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve"](cuda.cuMemcpyHtoD_v2, there, memory, size))

    for _ in range(COPIES):
        if way == "thread":

            def work():
                must(cuda.cuCtxSetCurrent(context))
                step()

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            step()
    print("lines: copied")


if __name__ == "__main__":
    main(sys.argv[1])
