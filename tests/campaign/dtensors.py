"""The twenty-six models as DTensors on 2 and on 4 processes, each beside one process."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.partitioning.listed import MODELS
from tests.runtime.test_process_group import processes

PROCESSES = (2, 4)
NAMES = sorted(MODELS, key=lambda name: name != "depthwise")  # it takes a quarter of what the first of the list takes
CASES = [(name, count) for name in NAMES for count in PROCESSES]
FULL_COUNT = len(CASES)
SHORT_COUNT = 1


def run(count: int, seed: int) -> list[str]:
    return [failure for case in range(seed, seed + count) if (failure := _case(case)) is not None]


def _case(seed: int) -> str | None:
    name, count = CASES[seed % len(CASES)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            processes(count, Path(folder), f"dtensor_listed:{name}:{count}")
        except AssertionError as failure:
            return f"seed {seed}: {name} on {count} processes: {failure}"
    return None
