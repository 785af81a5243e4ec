"""libpinion's C API (pinion/pinion.h) by ctypes: structures, prototypes, and the memory of a Python buffer.

libpinion.so.0 is the dynamic linker's, else the one beside the `pinion` of this Python or of PATH, loaded at the first use."""
import ctypes
import functools
import os
import pathlib
import shutil
import sys

from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint, c_uint32, c_uint64, c_void_p

SONAME = "libpinion.so.0"


class Sized(ctypes.Structure):
    """A structure whose first member is its size, as the library wants it."""

    def __init__(self, **values):
        super().__init__(size=ctypes.sizeof(self), **values)

    def values(self):
        return {name: getattr(self, name) for name, _ in self._fields_ if name not in ("size", "reserved")}


class pinion_lease(ctypes.Structure):
    _fields_ = [("opaque", c_uint64 * 20)]


class pinion_keys(Sized):
    _fields_ = [("size", c_size_t), ("handle", c_uint64), ("lkey", c_uint32), ("rkey", c_uint32), ("address", c_uint64),
                ("bytes", c_uint64), ("access", c_uint), ("reserved", c_uint), ("descriptor", c_void_p), ("remote_key", c_uint64),
                ("remote_base", c_uint64), ("raw_key", c_void_p), ("raw_key_bytes", c_uint64), ("endpoint", c_void_p)]


class pinion_range(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("bytes", c_size_t)]


class pinion_prepare_options(Sized):
    _fields_ = [("size", c_size_t), ("access", c_uint), ("hugepages", c_uint), ("threads", c_uint), ("reserved", c_uint),
                ("piece_bytes", c_uint64)]


class pinion_preparation_state(Sized):
    _fields_ = [("size", c_size_t), ("error", c_int), ("reserved", c_int), ("bytes", c_uint64), ("prepared_bytes", c_uint64),
                ("elapsed_ns", c_uint64), ("left_ns", c_uint64)]


class pinion_statistics(Sized):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "acquires", "hits", "waits", "misses", "bounced", "observed", "acquired_bytes", "bounced_bytes", "registrations",
        "registrations_ahead", "deregistrations", "registration_failures", "registered_bytes", "registered_peak_bytes", "regions",
        "registration_ns", "wait_ns")]


STRUCTURES = [pinion_lease, pinion_keys, pinion_range, pinion_prepare_options, pinion_preparation_state, pinion_statistics]

_PROTOTYPES = {
    "pinion_start": [c_char_p],
    "pinion_stop": [],
    "pinion_domain_open": [c_char_p, c_char_p, POINTER(c_void_p)],
    "pinion_domain_close": [c_void_p],
    "pinion_acquire": [c_void_p, c_void_p, c_size_t, c_uint, POINTER(pinion_lease)],
    "pinion_try_acquire": [c_void_p, c_void_p, c_size_t, c_uint, POINTER(pinion_lease)],
    "pinion_release": [POINTER(pinion_lease)],
    "pinion_lease_keys": [POINTER(pinion_lease), POINTER(pinion_keys)],
    "pinion_prepare": [c_void_p, POINTER(pinion_range), c_size_t, POINTER(pinion_prepare_options), POINTER(c_void_p)],
    "pinion_preparation_poll": [c_void_p, POINTER(pinion_preparation_state)],
    "pinion_preparation_wait": [c_void_p, c_uint64],
    "pinion_preparation_cancel": [c_void_p],
    "pinion_preparation_end": [c_void_p],
    "pinion_statistics": [c_void_p, POINTER(pinion_statistics)],
}


def commands():
    """The `pinion` beside this Python, as pip installs it, then the one of PATH: those that there are."""
    return filter(None, [shutil.which("pinion", path=os.path.dirname(sys.executable)), shutil.which("pinion")])


def _beside_the_command():
    for command in commands():
        prefix = pathlib.Path(command).resolve().parent.parent
        yield from sorted(prefix.glob(f"lib*/{SONAME}")) + sorted(prefix.glob(f"lib/*/{SONAME}"))


@functools.lru_cache(maxsize=None)
def library():
    loaded = None
    for name in [SONAME, *_beside_the_command()]:
        try:
            loaded = ctypes.CDLL(os.fspath(name))
            break
        except OSError as error:
            failure = error
    if loaded is None:
        raise failure
    for name, arguments in _PROTOTYPES.items():
        getattr(loaded, name).argtypes = arguments
        getattr(loaded, name).restype = c_int
    for name in ("pinion_version", "pinion_last_error"):
        getattr(loaded, name).argtypes = []
        getattr(loaded, name).restype = c_char_p
    return loaded


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p), ("suboffsets", c_void_p),
                ("internal", c_void_p)]


_ANY_CONTIGUOUS, _WRITABLE = 0x98, 0x1


class Memory:
    """The memory of a contiguous buffer (bytes, bytearray, array, numpy.ndarray, ...). Until release() the buffer can be neither
    resized nor freed. Raises BufferError for others, and for one that is read-only where the device will write."""

    def __init__(self, buffer, writable):
        self._view = _PyBuffer()
        flags = _ANY_CONTIGUOUS | (_WRITABLE if writable else 0)
        try:
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), byref(self._view), c_int(flags))
        except ValueError as error:  # numpy's
            raise BufferError(str(error)) from None
        self.address, self.bytes = self._view.buf or 0, self._view.len

    def release(self):
        if self._view is not None:
            ctypes.pythonapi.PyBuffer_Release(byref(self._view))
            self._view = None
