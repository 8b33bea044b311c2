"""Fuzzer of several readings at once: a function that reads two to four things, each in a module of its own.

The things are those of the staleness campaign. Between calls one of them is changed, changed otherwise, or set up anew,
so that a state comes back that was there before; and the graph becomes another one. Every call is compared with plain
Python's, as in ``staleness.py``.

``python -m tests.campaign.combined SEED`` prints the program of a case.
"""

from __future__ import annotations

import contextvars
import linecache
import random
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import vgraph
from tests.campaign import plain
from tests.campaign.hosts import HOSTS, Host
from tests.campaign.programs import HEAD, VIAS, Reading, Via, written
from tests.campaign.staleness import READINGS, Outcome, _execute, _graphs, _outcome, _quiet, _same, _shown

FULL_COUNT = 1_000
SHORT_COUNT = 12

_PLACES = ("COLUMNS", "FRAME", "GRAPHS", "g.ndata", "g.edata")  # what is of the host's, in a reading of the host itself
_ANEW = "set up anew"


def _stands_alone(reading: Reading) -> bool:
    texts = [reading.setup, reading.value, reading.body, reading.use, *reading.changes.values()]
    is_of_host = reading.is_direct or reading.hosts or reading.local or reading.params or reading.expects != "equal"
    return not is_of_host and not any(place in text for place in _PLACES for text in texts)


ALONE = tuple(reading for reading in READINGS if _stands_alone(reading))
_VIAS = tuple(via for via in VIAS if not via.is_direct and not via.is_module)


@dataclass(frozen=True)
class Combined:
    """Readings, what stands between each and the function, and changes: the number of a reading, and which."""

    seed: int
    host: Host
    readings: tuple[tuple[Reading, Via], ...]
    changes: tuple[tuple[int, str], ...]
    has_gradient: bool

    def __str__(self) -> str:
        names = "; ".join(f"{reading.name} in {via.name}" for reading, via in self.readings)
        return f"seed {self.seed}: {names} of {self.host.name}"

    def module(self, number: int) -> str:
        """The source of the module in which a reading stands: ``user(rows)``."""
        reading, via = self.readings[number]
        host = Host("", "def user(rows{params}):\n    {work}\n    return out\ncall = None")
        return written(reading, host, via, "").main

    @property
    def main(self) -> str:
        work = "\n".join(["out = rows", *(f"out = {_name(self.seed, n)}.user(out)" for n in range(len(self.readings)))])
        lines = list[str]()
        for line in self.host.source.replace("{params}", "").splitlines():
            before = line[: len(line) - len(line.lstrip())]
            lines += indent(work, before).splitlines() if line.strip() == "{work}" else [line]
        body = "\n".join(lines).replace("{{", "{").replace("}}", "}")
        names = ", ".join(_name(self.seed, n) for n in range(len(self.readings)))
        return f"{HEAD}import {names}\n{body}\n"


def _name(seed: int, number: int) -> str:
    return f"vg_part_{seed}_{number}"


def case_of(seed: int) -> Combined:
    """The case of a seed; every reading comes in turn, with others by chance."""
    draw = random.Random(f"combined {seed}")
    chosen = [ALONE[seed % len(ALONE)], *draw.sample(ALONE, draw.choice([1, 1, 2, 3]))]
    draw.shuffle(chosen)
    changes = list[tuple[int, str]]()
    for _ in range(draw.choice([3, 5, 7])):
        number = draw.randrange(len(chosen))
        anew = () if chosen[number].after else (_ANEW,)  # what puts the process back holds what there was at first
        changes.append((number, draw.choice([*chosen[number].changes, *anew])))
    readings = tuple((reading, draw.choice(_VIAS)) for reading in chosen)
    return Combined(seed, draw.choice(HOSTS), readings, tuple(changes), draw.random() < 0.3)


def run(count: int, seed: int) -> list[str]:
    """The cases in which a call is not plain Python's."""
    return [failure for number in range(seed, seed + count) if (failure := check(case_of(number)))]


def check(case: Combined) -> str:
    """What is wrong with a case, or nothing."""
    runs = list[list[Outcome]]()
    for library in (plain, vgraph):
        with _quiet():
            runs.append(contextvars.copy_context().run(_outcomes, case, library))
    for number, (one, two) in enumerate(zip(*runs, strict=True)):
        if not _same(one, two):
            changed = ", then ".join(f"{case.readings[n][0].name}: {name}" for n, name in case.changes[: number // 2])
            return f"{case}, call {number + 1} ({changed}): plain Python gives {_shown(one)}, vgraph {_shown(two)}"
    return ""


def _outcomes(case: Combined, library: Any) -> list[Outcome]:
    with _modules(case, library) as (main, parts):
        made = _graphs(library, case.has_gradient)
        main.__dict__["g"] = made["small"]()
        return list(_calls(case, main, parts, made))


def _calls(case: Combined, main: types.ModuleType, parts: Sequence[types.ModuleType], made: Any) -> Iterator[Outcome]:
    """Two calls before any change, and two after each."""
    draw = random.Random(case.seed)
    call: Any = main.__dict__["call"]
    for number, change in [(-1, ""), *case.changes]:
        if change:
            reading = case.readings[number][0]
            _execute(reading.setup if change == _ANEW else reading.changes[change], parts[number])
            main.__dict__["g"] = made[draw.choice(["small", "larger"])]()
        for _ in range(2):
            yield _outcome(call, main)


@contextmanager
def _modules(case: Combined, library: Any) -> Iterator[tuple[types.ModuleType, list[types.ModuleType]]]:
    """The module with the function, and those in which the readings stand."""
    before, parts = set(sys.modules), list[types.ModuleType]()
    with ExitStack() as after:
        try:
            for number, (reading, _) in enumerate(case.readings):
                part = _loaded(_name(case.seed, number), case.module(number), library)
                after.callback(_execute, reading.after, part)
                parts.append(part)
            yield _loaded(f"vg_combined_{case.seed}", case.main, library), parts
        finally:
            after.close()
            for name in set(sys.modules) - before:
                if name.startswith(("vg_", "later")):
                    linecache.cache.pop(_file(name), None)
                    del sys.modules[name]


def _file(name: str) -> str:
    return f"/a program of vgraph's/{name}.py"


def _loaded(name: str, source: str, library: Any) -> types.ModuleType:
    made, file = types.ModuleType(name), _file(name)
    made.__dict__.update(vg=library, fn=library.function)
    sys.modules[name] = made
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), made.__dict__)
    return made


def main(words: Sequence[str]) -> None:
    """Prints programs, with what is changed, and whether they fail."""
    for seed in map(int, words):
        case = case_of(seed)
        for number in range(len(case.readings)):
            print(f"# --- {_name(seed, number)}\n{case.module(number)}")
        print(f"# --- main\n{case.main}\n# --- changes\n{case.changes}")
        print(check(case) or "passes")


if __name__ == "__main__":
    main(sys.argv[1:])
