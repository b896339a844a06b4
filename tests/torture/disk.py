"""A disk that fails on demand: `faults.c`, compiled, preloaded into a process of its own, and armed before a step."""

from __future__ import annotations

import ctypes
import enum
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


class Call(enum.IntFlag):
    """What a call does: the first enum of `faults.c`."""

    CREATE, WRITE, SYNC, NAME, REMOVE, READ = 1, 2, 4, 8, 16, 32
    CHANGE = CREATE | WRITE | SYNC | NAME | REMOVE
    TAKES_SPACE = CREATE | WRITE | SYNC | NAME


class How(enum.IntEnum):
    """What happens at the n-th call that counts: the second enum of `faults.c`."""

    COUNT, KILL, FAIL, FAIL_ON, SHORT, SHORT_KILL, SHORT_FAIL = range(7)


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to fail. ``counted``: the calls at each of which it may strike."""

    counted: Call
    how: How
    error: int = 0

    @property
    def kills(self) -> bool:
        """Whether the process is gone."""
        return self.how in (How.KILL, How.SHORT_KILL)

    @property
    def lasts(self) -> bool:
        """Whether the disk stays broken for everything, the removal of files too."""
        return self.how is How.FAIL_ON and Call.REMOVE in self.counted


ENOSPC, EIO = 28, 5

FAULTS = {
    "killed": Fault(Call.CHANGE, How.KILL),
    "killed in the middle of a write": Fault(Call.WRITE, How.SHORT_KILL),
    "disk full": Fault(Call.TAKES_SPACE, How.FAIL_ON, ENOSPC),
    "disk full for a moment": Fault(Call.TAKES_SPACE, How.FAIL, ENOSPC),
    "disk full in the middle of a write": Fault(Call.WRITE, How.SHORT_FAIL, ENOSPC),
    "disk broken": Fault(Call.CHANGE, How.FAIL_ON, EIO),
    "disk broken for a moment": Fault(Call.CHANGE, How.FAIL, EIO),
    "short write": Fault(Call.WRITE, How.SHORT),
    "unreadable for a moment": Fault(Call.READ, How.FAIL, EIO),
}


def compiled(folder: Path) -> Path:
    """The library to preload, made by the C compiler."""
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    command = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    return library


def arm(folder: Path, fault: Fault, at: int) -> None:
    """Strike at the ``at``-th call below a folder, in this process; 0 only counts."""
    _library().faults_arm(os.fsencode(folder), int(fault.counted), int(fault.how), fault.error, ctypes.c_long(at))


def disarm() -> int:
    """Strike no more; how many calls there were."""
    return int(_library().faults_disarm())


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.faults_disarm.restype = ctypes.c_long
    return library
