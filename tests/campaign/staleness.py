"""Fuzzer of staleness: what functions read, ways to change it, and whether the next call sees the change.

A case is a way of reading, a way of changing, a kind of function and what stands between the two (programs.py). Its
program runs twice, each time in modules of its own: with vgraph, and by plain Python and torch (plain.py), where
nothing is captured. A difference is a stale result; so is an error that plain Python does not raise.

``python -m tests.campaign.staleness SEED`` prints the program of a case.
"""

from __future__ import annotations

import contextvars
import importlib
import itertools
import linecache
import logging
import random
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vgraph
from tests.campaign import plain
from tests.campaign.hosts import HOSTS, Host
from tests.campaign.programs import VIAS, Program, Reading, Via, written
from tests.campaign.readings import PYTHON
from tests.campaign.readings_library import LIBRARY_READINGS
from tests.campaign.readings_more import MORE_READINGS
from tests.campaign.readings_torch import TORCH_READINGS

FULL_COUNT = 1_000
SHORT_COUNT = 24

READINGS: tuple[Reading, ...] = (*PYTHON, *LIBRARY_READINGS, *TORCH_READINGS, *MORE_READINGS)
_REFUSED = "writes in place to a tensor that is not its own"
_SMALL = ([0, 1, 1, 2, 2, 3], [2, 2, 3, 3, 4, 4])
_LARGER = ([0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
_MOST_VARIED = 12  # calls of what is another number each time

Outcome = list[Tensor] | str  # a result with gradients, or the name of an error


@dataclass(frozen=True)
class Case:
    """One program and what is done with it."""

    seed: int
    reading: Reading
    changes: tuple[str, ...]
    host: Host
    via: Via
    calls_before: int
    has_gradient: bool

    def __str__(self) -> str:
        ways = ", then ".join(self.changes)
        return f"seed {self.seed}: {self.reading.name} ({ways}) in {self.via.name} of {self.host.name}"

    @property
    def program(self) -> Program:
        return written(self.reading, self.host, self.via, f"vg_beside_{self.seed}")


def _pairs() -> list[tuple[Reading, str]]:
    pairs = [(reading, change) for reading in READINGS for change in reading.changes]
    random.Random(0).shuffle(pairs)
    return pairs


PAIRS = _pairs()


def case_of(seed: int) -> Case:
    """The case of a seed: every way of reading and changing comes in turn, the rest by chance."""
    draw = random.Random(f"staleness {seed}")
    reading, change = PAIRS[seed % len(PAIRS)]
    host = draw.choice([host for host in HOSTS if not reading.hosts or host.name in reading.hosts])
    via = draw.choice([via for via in VIAS if via.is_direct or not reading.is_direct])
    more = [name for name in reading.changes if name != change]
    changes = (change, draw.choice(more)) if more and draw.random() < 0.3 else (change,)
    return Case(seed, reading, changes, host, via, draw.choice([1, 2, 2, 3]), draw.random() < 0.3)


def run(count: int, seed: int) -> list[str]:
    """The cases whose results are stale, or raise what plain Python does not."""
    return [failure for number in range(seed, seed + count) if (failure := check(case_of(number)))]


def check(case: Case) -> str:
    """What is wrong with a case, or nothing."""
    with _quiet():
        wanted = _outcomes(case, plain, plain.function)
        found = _outcomes(case, vgraph, vgraph.function)
    if case.reading.expects == "vary":
        return _check_varied(case, wanted, found)
    for number, (one, two) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(two, str) and _REFUSED in two:
            return ""  # a vertex function must not: docs/limits.md
        if not _same(one, two):
            when = "before any change" if number < case.calls_before else "afterwards"
            return f"{case}, call {number + 1} ({when}): plain Python gives {_shown(one)}, vgraph {_shown(two)}"
    return ""


def _check_varied(case: Case, wanted: Sequence[Outcome], found: Sequence[Outcome]) -> str:
    if any(isinstance(one, str) for one in wanted):
        return "" if any(isinstance(two, str) for two in found) else f"{case}: raises nothing"
    stuck = all(_same(found[0], other) for other in found[1:])
    failed = next((one for one in found if isinstance(one, str)), "")
    if all(_same(wanted[0], other) for other in wanted[1:]):
        return ""
    return f"{case}: {failed or _shown(found[0])} at all of {len(found)} calls" if stuck or failed else ""


def _same(one: Outcome, two: Outcome) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and isinstance(two, str)
    if len(one) != len(two) or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(one, two, strict=True)):
        return False
    return all(map(_close, one, two))


def _close(a: Tensor, b: Tensor) -> bool:
    """Sums of 16 bits are rounded after each summand, or once."""
    near = max(1e-4, 4 * torch.finfo(a.dtype).eps) if a.dtype.itemsize == 2 and a.is_floating_point() else 1e-4
    return torch.allclose(a, b, rtol=near, atol=near, equal_nan=True)


def _shown(outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return outcome
    return " and ".join(f"{str(t.dtype)[6:]} {t.flatten()[-3:].tolist()}" for t in outcome)


# ---------------------------------------------------------------- running a program
def _outcomes(case: Case, library: Any, function: Any) -> list[Outcome]:
    return contextvars.copy_context().run(_run, case, library, function)


def _run(case: Case, library: Any, function: Any) -> list[Outcome]:
    program = case.program
    with _modules(case, program, library, function) as (main, where):
        made = _graphs(library, case.has_gradient)
        for space in (main.__dict__, where.__dict__):
            space.update(g=made["small"](), GRAPHS=made)
        try:
            return list(_script(case, main, where))
        finally:
            _execute(case.reading.after, where)


def _script(case: Case, main: Any, where: Any) -> Iterator[Outcome]:
    """Every call's outcome; what is changed may be the graph."""
    if case.reading.expects == "vary":
        for _ in range(_MOST_VARIED):
            yield _outcome(main.call, where)
        return
    for _ in range(case.calls_before):
        yield _outcome(main.call, where)
    for name in case.changes:
        size = 6 if case.host.frame == "edata" else 5
        text = case.reading.changes[name].replace("FRAME", case.host.frame or "ndata").replace("SIZE", str(size))
        _execute(text, where)
        for _ in range(2):
            yield _outcome(main.call, where)


def _outcome(call: Callable[[Any], Tensor], where: Any) -> Outcome:
    try:
        h = where.g.ndata["h"]
        out = call(where.g).as_subclass(Tensor)
        if not (out.requires_grad and h.requires_grad):
            return [out.detach().clone()]
        grads = torch.autograd.grad(out.sum(), h, allow_unused=True)
        return [out.detach().clone(), *(grad for grad in grads if grad is not None)]
    except Exception as error:
        return type(error).__name__ + ": " + str(error).partition("\n")[0]


def _graphs(library: Any, has_gradient: bool) -> dict[str, Callable[[], Any]]:
    def make(edges: tuple[list[int], list[int]]) -> Any:
        g = library.graph(edges)
        count = max(edges[1]) + 1
        h = 1 + torch.arange(2 * count, dtype=torch.float32).view(count, 2) / 8
        g.ndata["h"] = h.requires_grad_(has_gradient)
        g.ndata["type"] = torch.tensor([0, 0] + [1] * (count - 2))
        return g

    return {"small": lambda: make(_SMALL), "larger": lambda: make(_LARGER)}


def _execute(text: str, where: types.ModuleType) -> None:
    try:
        exec(compile(text, "<change>", "exec"), where.__dict__)
    except Exception as error:  # the same in both runs; what it leaves is compared
        where.__dict__["failed_change"] = error


@contextmanager
def _modules(
    case: Case, program: Program, library: Any, function: Any
) -> Iterator[tuple[types.ModuleType, types.ModuleType]]:
    """The program's main module, and the one in which the reading stands."""
    before = set(sys.modules)
    with tempfile.TemporaryDirectory(prefix="vgraph-stale-") as folder:
        file = str(Path(folder, f"case_{case.seed}.py"))
        beside = f"vg_beside_{case.seed}"
        if program.beside:
            Path(folder, f"{beside}.py").write_text(program.beside, encoding="utf-8")
            sys.path.insert(0, folder)
            importlib.invalidate_caches()
        main = types.ModuleType(f"vg_case_{case.seed}")
        main.__dict__.update(vg=library, fn=function)
        sys.modules[main.__name__] = main
        try:
            where = importlib.import_module(beside) if program.beside else main
            linecache.cache[file] = (len(program.main), None, program.main.splitlines(True), file)
            exec(compile(program.main, file, "exec"), main.__dict__)
            yield main, where
        finally:
            for name in set(sys.modules) - before:
                if name.startswith(("vg_", "later")):
                    del sys.modules[name]
            if program.beside:
                sys.path.remove(folder)
            linecache.cache.pop(file, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Both runs begin with the same random numbers, and nobody hears of what cannot be captured."""
    logger, level = logging.getLogger("vgraph"), logging.getLogger("vgraph").level
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])


def main(words: Sequence[str]) -> None:
    """Prints programs, with what is changed, and whether they fail."""
    for seed in map(int, words):
        case = case_of(seed)
        print(f"# {case}")
        for name, text in itertools.chain([("beside", case.program.beside), ("main", case.program.main)]):
            print(f"# --- {name}\n{text}" if text else "", end="")
        for name in case.changes:
            print(f"# --- {name}\n{case.reading.changes[name]}")
        print(check(case) or "passes")


if __name__ == "__main__":
    main(sys.argv[1:])
