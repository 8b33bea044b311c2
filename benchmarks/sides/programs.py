"""PyG's example programs, each run in a process of its own, unchanged: how long an epoch takes, and what it prints.

Takes: a folder of programs, the name of one, a side. Gives: a Run. A program is ended after so many lines that begin
with *Epoch*; the seconds between them are its epochs, whatever it does in one. Data: program_data/sitecustomize.py.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sides.alternate import PROJECT

# How far apart numbers of the last line may be. None: random numbers are drawn within messages, in other order.
PROGRAMS: dict[str, float | None] = {
    "gcn": 0.02, "gat": None, "gcn2_cora": 0.02, "agnn": 0.02, "sgc": 0.02, "tagcn": 0.02, "arma": 0.02,
    "super_gat": None, "mutag_gin": 0.02, "rgcn": 0.02, "pna": 0.02, "link_pred": 0.02, "autoencoder": 0.02,
    "dna": None, "infomax_transductive": 0.02,
}  # fmt: skip
WAYS = {"pyg_eager": (), "pyg_compiled": (), "pyg_accelerated": ("-m", "vgraph.compat.pyg")}
_NUMBER = re.compile(r"-?\d+\.\d+")


@dataclass
class Run:
    """What a program showed: seconds of its epochs, the numbers of the last one, or why there are none."""

    seconds: list[float] = field(default_factory=list[float])
    numbers: list[float] = field(default_factory=list[float])
    problem: str = ""

    @property
    def median(self) -> float | None:
        """Of the later half: functions and kernels are compiled in the first epochs."""
        return statistics.median(self.seconds[len(self.seconds) // 2 :]) if self.seconds and not self.problem else None

    def as_json(self) -> dict[str, Any]:
        if self.problem:
            return {"problem": self.problem}
        return {"median": self.median, "best": min(self.seconds), "epochs": len(self.seconds), "last": self.numbers}


@dataclass(frozen=True)
class Conditions:
    """``data``: a folder with local files; ``rounds``: how often each side runs; ``limit``: seconds of one run."""

    folder: Path
    data: Path | None
    epochs: int
    rounds: int
    threads: int
    limit: float


def run_in_turns(name: str, sides: Sequence[str], conditions: Conditions) -> dict[str, Run]:
    """One side after the other, in rounds; seconds of all rounds together."""
    found = {side: Run() for side in sides}
    for _ in range(conditions.rounds):
        for side, before in found.items():
            if not before.problem:
                run = run_program(conditions.folder / f"{name}.py", side, conditions)
                run.seconds = before.seconds + run.seconds[len(run.seconds) // 2 :]
                found[side] = run
    return found


def run_program(script: Path, side: str, conditions: Conditions) -> Run:
    here = Path(__file__).resolve().parent
    paths = [str(here / "program_data"), str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": str(conditions.threads),
        "PROGRAM_DATA": str(conditions.data or ""), "PROGRAM_COMPILES": str(int(side == "pyg_compiled")),
    }  # fmt: skip
    command = [sys.executable, "-u", "-W", "ignore", *WAYS[side], str(script.resolve())]
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdout
        try:
            run, ended = _read(process.stdout, conditions)
            if ended and process.wait():
                errors.seek(0)
                run.problem = f"failed ({(errors.read().strip().splitlines() or ['no word'])[-1]})"
        finally:
            process.kill()
            process.communicate()
    return run


def _read(lines: Iterable[str], conditions: Conditions) -> tuple[Run, bool]:
    """A Run, and whether the program came to its end by itself."""
    run, epochs, start = Run(), 0, time.perf_counter()
    last = start
    for line in lines:
        if not line.startswith("Epoch"):
            continue
        now = time.perf_counter()
        if epochs:
            run.seconds.append(now - last)
        last, epochs = now, epochs + 1
        run.numbers = [float(number) for number in _NUMBER.findall(line)]
        if epochs > conditions.epochs or now - start > conditions.limit:
            return run, False
    if not run.seconds:
        run.problem = "no two lines begin with Epoch"
    return run, True


def difference(first: Run, second: Run) -> float:
    """The largest of numbers that should be equal."""
    return max((abs(a - b) for a, b in zip(first.numbers, second.numbers, strict=True)), default=0.0)
