"""The twenty-six models as DTensors on 2 and on 4 processes, each beside one process; then models drawn by a seed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.partitioning.listed import MODELS
from tests.runtime.test_process_group import processes

PROCESSES = (2, 4)
NAMES = sorted(MODELS, key=lambda name: name != "depthwise")  # it takes a quarter of what the first of the list takes
CASES = [(name, count) for name in NAMES for count in PROCESSES]
DRAWN = 40
FULL_COUNT = len(CASES) + DRAWN
SHORT_COUNT = 1


def run(count: int, seed: int) -> list[str]:
    return [failure for case in range(seed, seed + count) if (failure := _case(case)) is not None]


def _case(seed: int) -> str | None:
    if seed < len(CASES):
        name, count = CASES[seed]
        task = f"dtensor_listed:{name}:{count}"
    else:
        name, count = f"the model of seed {seed}", PROCESSES[seed % len(PROCESSES)]
        task = f"dtensor_drawn:{seed}:{count}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            processes(count, Path(folder), task)
        except AssertionError as failure:
            return f"seed {seed}: {name} on {count} processes: {failure}"
    return None
