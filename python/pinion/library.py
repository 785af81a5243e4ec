"""libpinion's sessions, domains, leases and preparations as context managers over any contiguous Python buffer.

    with pinion.Session(), pinion.Domain() as domain:
        with domain.prepare(array, access=pinion.WRITE) as prepared:
            prepared.wait()
            with domain.acquire(array, access=pinion.WRITE) as lease:
                send(array, lease.keys()["lkey"])
        print(domain.statistics()["hits"])

Calls that fail raise pinion.Error, an OSError with the errno value and the library's own line. Calls that wait let Python's other
threads run."""
import ctypes

from .bindings import (Memory, library, pinion_keys, pinion_lease, pinion_preparation_state, pinion_prepare_options, pinion_range,
                       pinion_statistics)

READ, WRITE, REMOTE_READ, REMOTE_WRITE = 0, 1, 2, 4
_FOREVER = 2**64 - 1
_DEVICE_WRITES = WRITE | REMOTE_WRITE


class Error(OSError):
    """A call of libpinion failed: `errno`, and a line with the failure, the limit, the need and the cure."""


def _check(code):
    if code != 0:
        raise Error(code, library().pinion_last_error().decode(errors="replace"))


def _text(value):
    return None if value is None else value.encode()


def version():
    """The library's own."""
    return library().pinion_version().decode()


def statistics(domain=None):
    """Counters of a domain, or of the process, by their names in pinion.h."""
    counted = pinion_statistics()
    _check(library().pinion_statistics(domain, ctypes.byref(counted)))
    return counted.values()


class _Ended:
    """Ends with its `with`; close() may be called again."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Session(_Ended):
    """The use of Pinion in this process. `options`: "name=value,..."; the environment overrides them."""

    def __init__(self, options=None):
        _check(library().pinion_start(_text(options)))
        self._started = True

    def close(self):
        if self._started:
            self._started = False
            _check(library().pinion_stop())


class Domain(_Ended):
    """A device and its protection domain, with a registration cache of its own. None: as the options have it."""

    def __init__(self, device=None, nic=None):
        self._handle = ctypes.c_void_p()
        _check(library().pinion_domain_open(_text(device), _text(nic), ctypes.byref(self._handle)))

    def acquire(self, buffer, access=READ):
        """A lease; registers where needed. Error where that is refused."""
        return Lease(library().pinion_acquire, self._handle, buffer, access)

    def try_acquire(self, buffer, access=READ):
        """A lease if the buffer is registered already, else Error with EAGAIN."""
        return Lease(library().pinion_try_acquire, self._handle, buffer, access)

    def prepare(self, *buffers, access=READ, hugepages=False, piece_bytes=0):
        """Registers buffers ahead of their first transfer, by threads of the library's. A buffer longer than `piece_bytes` (0: 16 MiB) is
        registered in pieces: a transfer across two of them needs a registration of its own."""
        return Preparation(self._handle, buffers, access, hugepages, piece_bytes)

    def statistics(self):
        return statistics(self._handle)

    def close(self):
        """Error with EBUSY, and it stays open, while leases are out."""
        if self._handle:
            _check(library().pinion_domain_close(self._handle))
            self._handle = ctypes.c_void_p()


class Lease(_Ended):
    """The right to use a buffer's registration; the buffer can be neither resized nor freed until its end."""

    def __init__(self, acquire, domain, buffer, access):
        self._lease = pinion_lease()
        self._memory = Memory(buffer, access & _DEVICE_WRITES)
        try:
            _check(acquire(domain, self._memory.address, self._memory.bytes, access, ctypes.byref(self._lease)))
        except Error:
            self._memory.release()
            raise
        self._held = True

    def keys(self):
        """For the device, by their names in pinion.h."""
        keys = pinion_keys()
        _check(library().pinion_lease_keys(ctypes.byref(self._lease), ctypes.byref(keys)))
        return keys.values()

    def close(self):
        if self._held:
            self._held = False
            library().pinion_release(ctypes.byref(self._lease))
            self._memory.release()


class Preparation(_Ended):
    """Buffers that are being registered, and stay so until its end."""

    def __init__(self, domain, buffers, access, hugepages, piece_bytes):
        self._handle = ctypes.c_void_p()
        self._memory = []
        try:
            for buffer in buffers:
                self._memory.append(Memory(buffer, access & _DEVICE_WRITES))
            ranges = (pinion_range * len(buffers))(*[(memory.address, memory.bytes) for memory in self._memory])
            options = pinion_prepare_options(access=access, hugepages=int(hugepages), piece_bytes=piece_bytes)
            _check(library().pinion_prepare(domain, ranges, len(buffers), ctypes.byref(options), ctypes.byref(self._handle)))
        except Exception:
            self._release()
            raise

    def _release(self):
        for memory in self._memory:
            memory.release()
        self._memory = []

    def state(self):
        """`error` (0: ready), `bytes`, `prepared_bytes`, `elapsed_ns`, `left_ns`."""
        state = pinion_preparation_state()
        library().pinion_preparation_poll(self._handle, ctypes.byref(state))
        return state.values()

    def wait(self, seconds=None):
        """Until all is ready; Error with ETIMEDOUT after `seconds`, or with the reason why it was rolled back."""
        _check(library().pinion_preparation_wait(self._handle, _FOREVER if seconds is None else int(seconds * 1e9)))

    def cancel(self):
        library().pinion_preparation_cancel(self._handle)

    def close(self):
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            library().pinion_preparation_end(handle)
            self._release()
