"""Features of some vertices, by ids on the CPU or where the graph lies; torch's "meta" device stands in for a GPU."""

from __future__ import annotations

import pytest
import torch

import vgraph
from tests.cuda.counted import on_meta
from tests.runtime.engine_models import MODELS, WIDTH, binary_tree
from vgraph.capture import capture
from vgraph.errors import FeatureError
from vgraph.scheduler.degree_buckets import active_part, degree_buckets


def leaves_of(g: vgraph.Graph) -> torch.Tensor:
    return (g.in_degrees() == 0).nonzero().squeeze(1)


@pytest.mark.parametrize("all_leaves", [True, False])
def test_ids_on_the_cpu_are_not_waited_for(all_leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    with on_meta():
        g, model = binary_tree(5), MODELS["child-sum"]().to("meta")
        ids = leaves_of(g) if all_leaves else leaves_of(g)[1:]
        rows = torch.empty(len(ids), WIDTH, device="meta", requires_grad=True)
        sum(o.sum() for o in model(g.to("meta"), x=vgraph.at(rows, ids)).values()).backward()
        assert rows.grad is not None and rows.grad.device.type == "meta"
        taken = vgraph.rows_at(torch.empty(3, 2, device="meta"), torch.tensor([2, 0]))
        assert taken.shape == (2, 2) and taken.device.type == "meta"
    capture.forget()


@pytest.mark.parametrize("words", ["rows", "ids"])
def test_at_on_another_device_than_the_graph(words: str) -> None:
    g, model = binary_tree(5), MODELS["child-sum"]()
    ids = leaves_of(g)
    rows = torch.zeros(len(ids), WIDTH)
    given = vgraph.at(rows.to("meta"), ids) if words == "rows" else vgraph.at(rows, ids.to("meta"))
    with pytest.raises(
        FeatureError, match=rf"(?s)the {words} of at\(...\) for 'x' are on meta, the graph on cpu.*\.to"
    ):
        model(g, x=given)


def test_parts_of_a_graph_are_made_on_the_cpu() -> None:
    """By degree, and what has in-edges: a GPU would be waited for."""
    g = vgraph.graph(([0, 1, 2, 3, 3], [1, 2, 2, 4, 1]), num_nodes=5)
    there = g.to("meta").topology
    for mine, theirs in zip(degree_buckets(there), degree_buckets(g.topology), strict=True):
        assert mine.degree == theirs.degree and mine.vertex_ids.shape == theirs.vertex_ids.shape
        assert mine.topology.src.device.type == mine.topology.original_ids["edge"].device.type == "meta"
        assert torch.equal(mine.topology.on_host.dst, theirs.topology.dst)
    part = active_part(there)
    assert part is not None and part.topology.num_dst == 3 and part.vertex_ids.device.type == "meta"
    assert there.in_degrees.device.type == "meta" and there.in_degrees.shape == (5,)


def test_rows_at_ids_of_another_device() -> None:
    with pytest.raises(FeatureError, match=r"(?s)ids on meta for rows on cpu.*\.to\("):
        vgraph.rows_at(torch.zeros(3, 2), torch.empty(1, dtype=torch.int64, device="meta"))
