"""Sides take turns: a process each, asked for one step after another in one run.

Each library has threads, memory and, if need be, an interpreter of its own; while one steps the others
sleep. Where all do not fit into memory at once, ``rounds`` starts each of them anew, alone, several times.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sides.workloads import Workload

NAMES = {
    "vgraph": "vgraph", "dgl": "DGL", "pyg": "PyG", "pyg_messages_compiled": "PyG compiled", "sparse": "torch.sparse",
    "sparse_both": "sparse both ways", "torch": "by hand in torch",
}  # fmt: skip
IN_A_TURN, SHORT = 5, 0.1  # steps of a side in one turn, those begun in so many seconds: the others cooled its caches
PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    threads: int
    steps: int
    warmup: int = 1
    memory: float = 0.0  # GiB that vgraph may take; 0: as much as there is
    peer_memory: float = 0.0  # GiB that any other side may take
    limit: float = 120.0  # seconds after which a side is not asked again
    peer_python: str = sys.executable
    rounds: int = 0  # so many times each side steps alone in memory; 0: all live at once and take turns
    patience: float | None = None  # seconds in which a side answers: builds or steps; None: however long it takes


@dataclass
class Found:
    """What one side showed: seconds of its steps, growth of memory, or why there are none."""

    seconds: list[float] = field(default_factory=list)
    growth: int = 0
    built: float = 0.0  # seconds before the first step
    held: int = 0  # bytes by which memory had grown then
    sizes: list[float] = field(default_factory=list)
    warmup: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def median(self) -> float | None:
        return sorted(self.seconds)[len(self.seconds) // 2] if self.seconds and not self.problem else None

    def as_json(self) -> dict[str, Any]:
        if self.problem:
            return {"problem": self.problem}
        return {
            "median": self.median, "best": min(self.seconds, default=None), "steps": len(self.seconds),
            "first": self.warmup[0] if self.warmup else None, "growth_gib": self.growth / 2**30,
            "built": self.built, "held_gib": self.held / 2**30,
        }  # fmt: skip


class Worker:
    """One side's process."""

    def __init__(self, side: str, workload: Workload, settings: Settings) -> None:
        here = str(Path(__file__).resolve().parents[1])
        paths = [here, str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")]
        threads = {"OMP_NUM_THREADS": str(settings.threads), "DGLBACKEND": "pytorch"}
        python = settings.peer_python if side in ("dgl", "pyg", "pyg_messages_compiled") else sys.executable
        self.patience = settings.patience
        self.process = subprocess.Popen(
            [python, "-m", "sides.worker"], cwd=here, text=True,
            env=os.environ | threads | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if SHOW else subprocess.DEVNULL,
        )  # fmt: skip
        memory = settings.memory if side == "vgraph" else settings.peer_memory
        request = {"side": side, "workload": workload.as_json(), "threads": settings.threads, "memory": memory}
        self.ready = self.ask(json.dumps(request))

    def ask(self, line: str) -> dict[str, Any]:
        """One line's answer; that there was none, where the process ended without a word or takes too long."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], self.patience)[0]:
                return {"failed": f"no answer in {self.patience:g} s"}
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        code = self.process.wait()
        return {"out_of_memory": "killed"} if code == -9 else {"failed": f"ended with {code}"}

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self.process.kill()
        self.process.communicate()


def machine_memory() -> float:
    """GiB of this machine, or of the container that it is."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total / 2**30


SHOW = bool(os.environ.get("BENCHMARK_STDERR"))


def alternate(
    workload: Workload, sides: Sequence[str], settings: Settings, floor: Callable[[], object] = lambda: None
) -> dict[str, Found]:
    """Every side's Found. ``floor`` takes its turn, too, as the machine may be slower in one round than in another."""
    found = {side: Found() for side in sides}
    if settings.rounds:
        for _ in range(settings.rounds):
            for side in sides:
                _run_alone(side, workload, settings, found[side])
            floor()
    else:
        _run_in_turns(workload, settings, found, floor)
    _compare(workload.kind, found)
    return found


def _run_in_turns(
    workload: Workload, settings: Settings, found: Mapping[str, Found], floor: Callable[[], object]
) -> None:
    workers = {side: Worker(side, workload, settings) for side in found}
    try:
        for side, worker in workers.items():
            _note(found[side], worker.ready, timed=False)
        began = dict.fromkeys(found, 0.0)
        for number in range(settings.warmup + settings.steps):
            for side, worker in workers.items():
                if not found[side].problem and began[side] < settings.limit:
                    start = time.perf_counter()
                    _take_turn(worker, found[side], number, settings)
                    began[side] += time.perf_counter() - start
            if number >= settings.warmup and (number - settings.warmup) % max(1, settings.steps // 5) == 0:
                floor()
        for one in found.values():
            if not one.seconds:
                one.seconds = one.warmup[-1:]  # slower than the limit: its first step is what there is
    finally:
        for worker in workers.values():
            worker.close()


def _run_alone(side: str, workload: Workload, settings: Settings, found: Found) -> None:
    if found.problem:
        return
    worker = Worker(side, workload, settings)
    try:
        _note(found, worker.ready, timed=False)
        end = time.perf_counter() + settings.limit
        for number in range(settings.warmup + settings.steps):
            if not found.problem and (time.perf_counter() < end or number <= settings.warmup):
                _take_turn(worker, found, number, settings)
    finally:
        worker.close()


def _take_turn(worker: Worker, found: Found, number: int, settings: Settings) -> None:
    start = time.perf_counter()
    for _ in range(IN_A_TURN if number else 1):
        _note(found, worker.ask("step" if number else "sizes"), timed=number >= settings.warmup)
        if found.problem or time.perf_counter() > start + SHORT:
            break


PROBLEMS = {
    "missing": "not installed", "left_out": "not timed", "out_of_memory": "out of memory", "failed": "failed",
}  # fmt: skip


def _note(found: Found, answer: Mapping[str, Any], *, timed: bool) -> None:
    for kind, words in PROBLEMS.items():
        if kind in answer:
            found.problem = f"{words} ({answer[kind]})" if kind in ("failed", "left_out") else words
    if "built" in answer:
        found.built, found.held = answer["built"], answer["held"]
    if "seconds" in answer:
        (found.seconds if timed else found.warmup).append(answer["seconds"])
        found.growth = max(found.growth, answer["growth"])
        found.sizes = answer.get("sizes", found.sizes)


def _compare(kind: str, found: Mapping[str, Found]) -> None:
    """SystemExit: two sides did not compute the same."""
    shown = {side: one.sizes for side, one in found.items() if one.sizes}
    first: Iterable[float] = next(iter(shown.values()), [])
    for side, sizes in shown.items():
        noise = 1e-4 * max(sizes)  # what should be zero is rounding
        if any(abs(a - b) > max(noise, 2e-3 * abs(a)) for a, b in zip(first, sizes, strict=True)):
            raise SystemExit(f"{kind}: sides do not compute the same: {shown}; {side} differs")
