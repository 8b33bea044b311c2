"""Tables whose nodes have names, and graphs of DGL."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vgraph
from tests.api.test_storage import same
from vgraph.errors import FeatureError, GraphError


def test_tables_of_names() -> None:
    ids: dict[Any, int] = {}
    g = vgraph.from_pandas(
        {"src": ["b", "a", "b"], "dst": ["a", "c", "b"], "w": [1, 2, 3]}, edge_attrs=["w"], node_ids=ids
    )
    assert ids == {"b": 0, "a": 1, "c": 2}
    assert [end.tolist() for end in g.edges()] == [[0, 1, 0], [1, 2, 0]]
    assert g.edata["w"].tolist() == [1, 2, 3]
    later = vgraph.from_pandas({"src": ["c"], "dst": ["new"]}, node_ids=ids)
    assert (ids["new"], later.num_nodes(), later.edges()[0].tolist()) == (3, 4, [2])


@pytest.mark.parametrize(
    ("table", "node_ids", "fact"),
    [
        ({"src": ["a"], "dst": ["b"]}, None, "the columns 'src' and 'dst' hold names"),
        ({"src": ["a", None], "dst": ["b", "c"]}, {}, "row 1 of the column 'src' is None"),
        ({"src": [0.0], "dst": [float("nan")]}, {}, "row 0 of the column 'dst' is nan"),
    ],
    ids=["no dict", "none", "nan"],
)
def test_tables_that_name_no_nodes(table: dict[str, Any], node_ids: dict[Any, int] | None, fact: str) -> None:
    with pytest.raises(FeatureError, match=fact):
        vgraph.from_pandas(table, node_ids=node_ids)
    assert not node_ids


class OfDGL:
    """In the place of a graph of DGL, which has these methods."""

    def __init__(self, g: vgraph.Graph) -> None:
        self.g = g

    def __getattr__(self, name: str) -> Any:
        return getattr(self.g, name)


def graphs() -> dict[str, vgraph.Graph]:
    tree = vgraph.graph(([0, 1], [2, 2]), num_nodes=4)
    tree.ndata["h"], tree.edata["w"] = torch.rand(4, 2), torch.rand(2)
    typed = vgraph.heterograph(
        {("u", "f", "u"): ([0], [1]), ("u", "p", "g"): ([0, 1], [1, 0])}, {"u": 3, "g": 2, "alone": 1}
    ).int()
    typed.nodes["g"].data["h"], typed.edges["p"].data["w"] = torch.rand(2, 2), torch.rand(2)
    block = vgraph.to_block(typed, {"g": [0, 1], "u": [1]})
    block.srcnodes["u"].data["x"], block.dstnodes["g"].data["y"] = (
        torch.rand(block.num_src_nodes("u"), 1),
        torch.rand(2, 1),
    )
    return {"tree": tree, "typed": typed, "batch": vgraph.batch([tree, tree]), "block": block}


@pytest.mark.parametrize("name", ["tree", "typed", "batch", "block"])
def test_graphs_of_dgl(name: str) -> None:
    g: Any = OfDGL(graphs()[name])
    made = vgraph.from_dgl(g)
    same(made, g.g)
    assert made.batch_size == g.batch_size
    assert vgraph.from_dgl(g, idtype=torch.int64).idtype == torch.int64


def test_what_is_no_graph_of_dgl() -> None:
    wrong: Any = torch.ones(2, 3)
    with pytest.raises(GraphError, match="a Tensor is no graph of DGL: it has no canonical_etypes"):
        vgraph.from_dgl(wrong)
