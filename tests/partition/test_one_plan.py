"""One model has one plan: whatever seeds hashes, where arrays lie in memory, and what was planned before."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vgraph.partition.search.cost_graph import CostGraph
from vgraph.partition.search.dominance import prune

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import vgraph
from benchmarks.partitioning.listed import listed
from vgraph.api.dense.plan_file import plan_digest

for name in sys.argv[1:]:
    plan = vgraph.parallelize(*listed(name), 4)
    print(name, plan_digest(plan.sharding, plan.step))
"""


def _digests(seed: int, *names: str) -> dict[str, str]:
    """By name the digest of its plan, made in a process of their own one after the other."""
    surroundings = os.environ | {
        "PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{PROJECT}{os.pathsep}{PROJECT / 'kernels'}",
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, cwd=PROJECT, env=surroundings, capture_output=True, text=True, check=True)
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


def test_two_processes_make_the_same_plans() -> None:
    """Their hashes differ, and the order in which they plan."""
    names = ("Fourier operator", "perceptron", "U-Net, interpolated")
    found = _digests(1, *names)
    assert list(found) == list(names)
    assert found == _digests(2, *reversed(names))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_where_arrays_lie_in_memory_decides_nothing(order: tuple[int, ...]) -> None:
    """Costs that are added up in another order round otherwise: here to a tie, or to a state that is ahead."""
    gaps = (1e17, -1.0, -1e17)
    assert gaps[0] + gaps[1] + gaps[2] == 0.0 != gaps[0] + gaps[2] + gaps[1]
    by_address = sorted([np.zeros((2, 1)) for _ in gaps], key=id)
    tables = [by_address[place] for place in order]
    for table, gap in zip(tables, gaps, strict=True):
        table[1] = gap
    alone = [np.zeros(2), *[np.zeros(1) for _ in gaps]]
    graph = CostGraph(alone, {(0, 1 + number): table for number, table in enumerate(tables)}, [])
    assert prune(graph).kept[0].tolist() == [0]
