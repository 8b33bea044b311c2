"""A step of a vertex function on a GPU: one copy of index tensors a batch, no wait, few launches a frontier."""

from __future__ import annotations

import pytest
import torch

import vgraph
from tests.cuda.counted import Notes, on_meta
from tests.runtime.engine_models import MODELS, WIDTH, Gates, binary_tree, random_dag

pytestmark = pytest.mark.usefixtures("kernels")


def step(model: vgraph.VertexFunction, g: vgraph.Graph, notes: Notes) -> None:
    """Forward and backward of a graph that comes from the CPU and was never seen."""
    there = g.to("meta")
    x = torch.empty(there.num_nodes(), WIDTH, device="meta", requires_grad=True)
    notes.launched.clear()
    notes.copied.clear()
    with notes:
        sum(o.sum() for o in model(there, x=x).values()).backward()


def trees(*sizes: int) -> vgraph.Graph:
    return vgraph.batch([binary_tree(n) for n in sizes])


@pytest.mark.parametrize("name", [*MODELS, "gates"])
@pytest.mark.parametrize("walks", ["0", "1"])
def test_a_step(name: str, walks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_WALK", walks)
    with on_meta() as notes:
        model = (MODELS | {"gates": Gates})[name]().to("meta")
        step(model, trees(2, 5), notes)  # captures and compiles
        g = trees(2, 7, 30, 4)
        step(model, g, notes)
    assert [waits for _, waits in notes.copied] == [False], "one copy of all index tensors, not waited for"
    num_frontiers = len(list(vgraph.topological_nodes_generator(g))) - 1
    found = notes.counted("section", "mm.out", "walk")
    if walks == "1":
        assert found == {"walk": 2, "section": 2}, "leaves are one frontier"
    else:
        assert found.total() - 2 <= (2 * 3) * num_frontiers, found


def test_batches_made_on_the_device() -> None:
    """Graphs that came from the CPU one by one: their batch is planned without a wait, too."""
    with on_meta() as notes:
        model = MODELS["gru"]().to("meta")
        parts = [random_dag(9, 12).to("meta"), binary_tree(4).to("meta")]
        for _ in range(2):
            step(model, vgraph.batch(parts), notes)
    assert [waits for _, waits in notes.copied] == [False]
