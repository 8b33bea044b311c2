"""Training on parts of a graph is training on the whole: losses, gradients, steps, second derivatives."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

import vgraph.distributed as vd
from tests.distributed.full_graph import reference
from tests.distributed.full_graph_models import MODELS
from tests.distributed.launch import on_ranks
from tests.distributed.small_graphs import homogeneous
from tests.tables import thorough
from vgraph.distributed.partition.partition_graph import METHODS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same graph, divided by every method into more parts than ranks, and what one process makes of the whole."""
    path = tmp_path_factory.mktemp("graph")
    for method in METHODS:
        vd.partition_graph(homogeneous(), path / "parts" / method, num_parts=5, method=method)
    torch.save({name: reference(name) for name in MODELS}, path / "wanted.pt")
    return path


COMPILED = ("gcn", "gat", "lambda", "dropout")


def compared(said: str) -> set[tuple[int, str, str]]:
    """Rank, method and model of every comparison that a rank says it has come through."""
    words = [line.split() for line in said.splitlines()]
    return {(int(line[0]), line[1], line[2]) for line in words if len(line) == 4 and line[1] in METHODS}


@pytest.mark.parametrize(
    ("ranks", "methods"),
    [
        (1, ("ldg",)),
        (2, ("hash",)),
        pytest.param(2, ("metis", "ldg", "fennel"), marks=thorough),
        (4, ("fennel",)),
        pytest.param(4, ("metis", "hash"), marks=thorough),
    ],
)
def test_all_models_on_ranks(ranks: int, methods: tuple[str, ...], folder: Path) -> None:
    said = on_ranks("tests.distributed.full_graph", ranks, str(folder), ",".join(methods), VGRAPH_CHECK_RANKS="1")
    assert compared(said) == set(product(range(ranks), methods, MODELS))


def test_compiled_loops_on_three_ranks(folder: Path) -> None:
    said = on_ranks("tests.distributed.full_graph", 3, str(folder), "fennel", *COMPILED, VGRAPH_KERNELS="1")
    assert compared(said) == set(product(range(3), ("fennel",), COMPILED))
