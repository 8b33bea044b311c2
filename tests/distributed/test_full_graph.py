"""Training on parts of a graph is training on the whole: losses, gradients, steps, second derivatives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vgraph.distributed as vd
from tests.distributed.full_graph import reference
from tests.distributed.full_graph_models import MODELS
from tests.distributed.launch import torchrun
from tests.distributed.small_graphs import homogeneous
from vgraph.distributed.partition.partition_graph import METHODS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same graph, divided by every method into more parts than ranks, and what one process makes of the whole."""
    path = tmp_path_factory.mktemp("graph")
    for method in METHODS:
        vd.partition_graph(homogeneous(), path / "parts" / method, num_parts=5, method=method)
    torch.save({name: reference(name) for name in MODELS}, path / "wanted.pt")
    return path


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_models_on_ranks(ranks: int, folder: Path) -> None:
    torchrun("tests.distributed.full_graph", ranks, str(folder), VGRAPH_CHECK_RANKS="1")


def test_compiled_loops_on_three_ranks(folder: Path) -> None:
    torchrun("tests.distributed.full_graph", 3, str(folder), "gcn", "gat", "lambda", "dropout", VGRAPH_KERNELS="1")
