"""Pinion from Python: leases on buffers by libpinion (library.py), and reports of runs from their logs (logs.py)."""
from .library import (
    READ,
    REMOTE_READ,
    REMOTE_WRITE,
    WRITE,
    Domain,
    Error,
    Lease,
    Preparation,
    Session,
    statistics,
    version,
)
from .logs import Run, report

__all__ = [
    "READ", "REMOTE_READ", "REMOTE_WRITE", "WRITE", "Domain", "Error", "Lease", "Preparation", "Run", "Session", "report", "statistics",
    "version",
]
