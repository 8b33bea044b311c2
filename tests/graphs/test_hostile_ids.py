"""Ids and counts that nobody's graph has: below 0, near 2^31, 2^32, 2^63, of odd dtypes, layouts and devices."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import vgraph
import vgraph.sparse
from vgraph.errors import ArgumentError, DataError, DeviceError, DTypeError, GraphError
from vgraph.graphs.draw.random_numbers import below, draw

LARGE = (2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1)
WRONG = (-(2**63), -1, *LARGE, 2**63, 2**64)


def line() -> vgraph.Graph:
    return vgraph.graph(([0, 1], [1, 2]))


TAKE_IDS: dict[str, Callable[[Any], Any]] = {
    "graph": lambda n: vgraph.graph(([0], [n])),
    "graph of three": lambda n: vgraph.graph(([0], [n]), num_nodes=3),
    "heterograph": lambda n: vgraph.heterograph({("a", "b", "c"): ([n], [0])}),
    "create_block": lambda n: vgraph.create_block(([0], [n])),
    "csr": lambda n: vgraph.graph(("csr", ([0, 1, 2], [1, n], []))),
    "csr pointers": lambda n: vgraph.graph(("csr", ([0, n, 2], [1, 0], []))),
    "csc edge ids": lambda n: vgraph.graph(("csc", ([0, 1, 2], [1, 0], [0, n]))),
    "from_pandas": lambda n: vgraph.from_pandas({"src": [0], "dst": [n]}),
    "add_edges": lambda n: line().add_edges([0], [n]),
    "add_edges, one": lambda n: line().add_edges(0, n),
    "add_edges, int32": lambda n: line().int().add_edges([0], [n]),
    "remove_edges": lambda n: line().remove_edges([n]),
    "remove_nodes": lambda n: line().remove_nodes([n]),
    "edge_subgraph": lambda n: vgraph.edge_subgraph(line(), [n]),
    "node_subgraph": lambda n: vgraph.node_subgraph(line(), [n]),
    "in_edges": lambda n: line().in_edges([n]),
    "find_edges": lambda n: line().find_edges([n]),
    "edge_ids": lambda n: line().edge_ids([0], [n]),
    "set_batch_num_nodes": lambda n: line().set_batch_num_nodes([n, 3 - n]),
}


@pytest.mark.parametrize("name", TAKE_IDS)
def test_ids_out_of_range(name: str) -> None:
    for number in WRONG:
        with pytest.raises((GraphError, DTypeError)) as caught:
            TAKE_IDS[name](number)
        assert caught.value.cure


def test_what_is_refused_changes_nothing() -> None:
    g = line().int()
    for wrong in ([2**31], [-1], [2**32 + 1]):
        with pytest.raises(GraphError):
            g.add_edges([0], wrong)
    assert ([end.tolist() for end in g.edges()], g.num_nodes()) == ([[0, 1], [1, 2]], 3)


def test_counts() -> None:
    for count in (-1, 2**48, 2**63, 1.5, "3", [3]):
        for make in (
            lambda n: vgraph.graph(([0], [1]), num_nodes=n),
            lambda n: vgraph.rand_graph(n, 2),
            lambda n: line().add_nodes(n),
        ):
            with pytest.raises((GraphError, ArgumentError), match=r"num(_nodes)?( is |=)"):
                make(count)  # type: ignore[no-untyped-call]
    assert vgraph.graph(([0], [1]), num_nodes=2**33).num_nodes() == 2**33  # the user's own word
    with pytest.raises(GraphError, match=r"the largest of 2 ids is 4294967296, which makes 4294967297 nodes"):
        vgraph.graph(([0], [2**32]))
    with pytest.raises(GraphError, match="2 edges have no nodes to join"):
        vgraph.rand_graph(0, 2)
    assert vgraph.rand_bipartite("a", "b", "c", 0, 0, 0).num_edges() == 0


def test_pointers_that_wrap_around() -> None:
    ptr = torch.tensor([0, 2**31 - 1, -2, 1, 2], dtype=torch.int32)
    with pytest.raises(GraphError, match="indptr does not ascend"):
        vgraph.graph(("csr", (ptr, torch.tensor([0, 1], dtype=torch.int32), torch.tensor([], dtype=torch.int32))))
    with pytest.raises(GraphError, match="edges are given as 'csr' of 0 arrays"):
        vgraph.graph(("csr", None))


@pytest.mark.parametrize(
    ("ids", "fact"),
    [
        (torch.zeros(2, dtype=torch.int64, device="meta"), "is on the meta device, where there are no ids"),
        (torch.tensor([0, 1]).to_sparse(), "is laid out as torch.sparse_coo; ids are dense"),
        (np.array([0, 2**63 + 5], np.uint64), "has an id from 2\\^63 up"),
        (torch.tensor([0.0, 1.0]), "ids are whole numbers"),
        (torch.tensor([0, 1j]), "ids are whole numbers"),
        (np.array(["2020-01-01"], "M8"), "is no array of whole numbers"),
        (np.array([0, None]), "is no array of whole numbers"),
        (torch.tensor([[0], [1]]), "ids have one dim"),
    ],
)
def test_ids_of_odd_kinds(ids: Any, fact: str) -> None:
    ways: list[Callable[[], Any]] = [
        lambda: vgraph.graph((ids, ids)),
        lambda: line().add_edges(ids, ids),
        lambda: vgraph.edge_subgraph(line(), ids),
        lambda: vgraph.node_subgraph(line(), ids),
    ]
    for way in ways:
        with pytest.raises((GraphError, DTypeError, DeviceError), match=fact):
            way()


def test_ids_that_are_views() -> None:
    ids = torch.arange(10)[::3]
    g = vgraph.graph((ids, torch.tensor([1]).expand(4)))
    assert g.edges()[0].tolist() == [0, 3, 6, 9]
    assert all(end.is_contiguous() for end in g.edges())
    assert vgraph.edge_subgraph(g, torch.arange(4)[::2]).num_edges() == 2


def test_no_devices_and_no_graphs() -> None:
    for device in ("nope", object()):
        with pytest.raises(DeviceError, match="is no device"):
            vgraph.graph(([0], [1]), device=device)  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match="is no device"):
            line().to(device)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"edge_index has shape \(1, 2\)"):
        vgraph.from_pyg(types.SimpleNamespace(edge_index=torch.tensor([[0, 1]])))
    with pytest.raises(GraphError, match="a int is no graph of NetworkX"):
        vgraph.from_networkx(5)
    with pytest.raises(GraphError, match="a int is no sparse matrix"):
        vgraph.bipartite_from_scipy(5, "a", "b", "c")
    with pytest.raises(GraphError, match="above"):
        vgraph.from_scipy(scipy.sparse.coo_matrix(([1], ([0], [1])), shape=(2**41, 2**41)))
    with pytest.raises(GraphError, match="batch_num_nodes of '_N' is"):
        line().set_batch_num_nodes([-1, 4])


def test_isolated_nodes_of_a_file(tmp_path: Any) -> None:
    g = vgraph.graph(([0], [1]), num_nodes=2**25)
    with pytest.raises(GraphError, match="33554432 nodes with 8 bytes of edges and features would not be read again"):
        vgraph.save_graphs(tmp_path / "g.bin", g)
    with pytest.raises(DataError, match="cannot read"):
        vgraph.load_graphs(tmp_path / "g.bin")


VAST = 2**35  # nodes whose pairs int64 cannot number


@pytest.mark.parametrize(
    "ask",
    [
        lambda g: vgraph.to_simple(g),
        lambda g: vgraph.to_bidirected(g),
        lambda g: g.has_edges_between([5 + 2**29], [3]),  # the number of this pair wraps around to that of (5, 3)
        lambda g: g.is_multigraph,
        lambda g: vgraph.sparse.matmul(*(thin(g, turned) for turned in (False, True))),
    ],
)
def test_pairs_of_more_nodes_than_can_be_numbered(ask: Callable[[vgraph.Graph], object]) -> None:
    with pytest.raises(GraphError, match=r"can number|can be numbered"):
        ask(vgraph.graph(([5, VAST - 1], [3, 2]), num_nodes=VAST))


def thin(g: vgraph.Graph, is_turned: bool) -> vgraph.sparse.SparseMatrix:
    """A matrix of very many rows or columns, and few of the other."""
    src, dst = g.edges()
    return vgraph.sparse.from_coo(*(dst, src) if is_turned else (src, dst), shape=(4, VAST) if is_turned else (VAST, 4))


def test_pairs_of_nearly_as_many_nodes_are_numbered() -> None:
    count = 3_037_000_499  # the root of 2**63
    g = vgraph.graph(([count - 1, 1], [count - 1, 3]), num_nodes=count)
    assert vgraph.to_bidirected(g).edges()[0].tolist() == [1, 3, count - 1]
    assert g.has_edges_between([count - 1, count - 1, 1], [count - 1, 3, 3]).tolist() == [True, False, True]


def test_numbers_are_drawn_below_any_count() -> None:
    drawn = draw(17, np.arange(4000), 0)
    for count in (2**32 - 1, 2**32, 2**32 + 1, 2**35 + 12345, 2**40):
        found, exact = below(drawn, count), [int(one) * count >> 64 for one in drawn]
        assert max(abs(int(a) - b) for a, b in zip(found, exact, strict=True)) <= (count <= 2**32)
    assert below(drawn[:2], np.array([3, 2**40])).tolist() == [int(drawn[0]) * 3 >> 64, int(drawn[1]) * 2**40 >> 64]
