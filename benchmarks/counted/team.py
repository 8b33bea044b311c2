"""A team of threads played by one (team.cpp): what parallel loops take, and what is left for one thread.

Takes: a number of threads. Gives: processor time of loops, of their longest shares, of all. The same on any machine,
however few cores it has and whatever else it does.
"""

from __future__ import annotations

import cProfile
import ctypes
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

_SOURCE = Path(__file__).with_name("team.cpp")
_PLACE = "VGRAPH_BENCHMARK_TEAM"  # where the compiled team lies
_KINDS = {  # of what one thread does, by the path of its code
    "/vgraph/runtime/cpu/": "native code that is not divided, and its calls",
    "/vgraph/": "vgraph's Python",
    "/torch/": "torch's Python: optimizer, autograd.Function",
}
OPERATORS, OTHERS = "torch's operators and engine", "the program's own Python"


def run_with_team(script: str, arguments: list[str], folder: Path) -> int:
    """Runs a script in a process whose loops a team of one plays; gives its exit status."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise SystemExit("threads.py counts by a library that a C++ compiler makes, and there is none")
    built = folder / "team.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-std=c++17", str(_SOURCE), "-o", str(built)], check=True)
    given = {"LD_PRELOAD": str(built), _PLACE: str(built), "MKL_NUM_THREADS": "1", "VGRAPH_PRODUCTS": "1"}
    return subprocess.run([sys.executable, script, *arguments], env=os.environ | given, check=False).returncode


def is_there() -> bool:
    """Whether this process has been started by ``run_with_team``."""
    return _PLACE in os.environ


@dataclass(frozen=True)
class Count:
    """Seconds of processor time of a step: in all, in loops, of the longest share of each; how many loops."""

    whole: float
    divided: float
    longest: float
    loops: int

    @property
    def serial(self) -> float:
        return self.whole - self.divided

    @property
    def on_team(self) -> float:
        """Of a step on the whole team, by Amdahl's law."""
        return self.serial + self.longest


class Team:
    """Of ``threads``; from now on all loops of the process are its."""

    def __init__(self, threads: int) -> None:
        self._library = ctypes.CDLL(os.environ[_PLACE])
        self._library.team_size(ctypes.c_int64(threads))
        self._library.team_serial.restype = ctypes.c_int64
        self.pool = ctypes.cast(self._library.team_for, ctypes.c_void_p).value or 0

    def _read(self) -> tuple[float, float, float, int]:
        numbers = (ctypes.c_double * 4)()
        self._library.team_read(numbers)
        return (*(1e-9 * n for n in numbers[:3]), int(numbers[3]))  # type: ignore[return-value]

    def count(self, step: Callable[[], object], rounds: int) -> Count:
        """Of the step that took least."""
        found = list[Count]()
        for _ in range(rounds):
            before = self._read()
            step()
            found.append(Count(*(b - a for a, b in zip(before, self._read(), strict=True))))  # type: ignore[arg-type]
        return min(found, key=lambda one: one.whole)

    def serial_parts(self, step: Callable[[], object], rounds: int) -> dict[str, float]:
        """What one thread does outside of loops, as shares of it: a profile whose clock stands still within loops."""
        profile, spent = cProfile.Profile(self._library.team_serial, 1e-9), Counter[str]()
        profile.enable()
        for _ in range(rounds):
            step()
        profile.disable()
        for entry in profile.getstats():
            spent[kind_of(entry.code)] += entry.inlinetime
        whole = sum(spent.values())
        return {kind: seconds / whole for kind, seconds in spent.most_common()}


def kind_of(code: CodeType | str | Any) -> str:
    """What a function of a profile belongs to."""
    if isinstance(code, str):  # not Python
        return OPERATORS if "torch" in code or "run_backward" in code else OTHERS
    return next((kind for part, kind in _KINDS.items() if part in code.co_filename), OTHERS)
