"""What a graph hands out: copies, since native loops trust its ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import vgraph
import vgraph.function as fn
import vgraph.sparse

METHODS = ("coo", "csr", "csc", "in_degrees", "out_degrees", "nodes", "batch_num_nodes", "batch_num_edges", "adj")
PARTS = ("row", "col", "indices", "indptr")  # of a SciPy matrix


def handed_out(g: vgraph.Graph) -> dict[str, Any]:
    """Whatever a graph answers that has ids in it."""
    some, found = torch.tensor([0, 1]), dict[str, Any]()
    for order in ("eid", "srcdst"):
        for form in ("uv", "eid", "all"):
            found[f"all_edges {form} {order}"] = g.all_edges(form=form, order=order)
            found[f"edges {form} {order}"] = g.edges(form=form, order=order)
    for name in (
        "coo",
        "csr",
        "csc",
        "in_degrees",
        "out_degrees",
        "nodes",
        "batch_num_nodes",
        "batch_num_edges",
        "adj",
    ):
        found[name] = getattr(g, name)()
    for fmt in ("coo", "csr", "csc"):
        found[f"tensors {fmt}"] = g.adj_tensors(fmt)
        made = g.to_scipy(scipy_fmt=fmt)
        found[f"scipy {fmt}"] = [getattr(made, part) for part in PARTS if hasattr(made, part)]
    found["in_edges"], found["out_edges"] = g.in_edges(some, form="all"), g.out_edges(some, form="all")
    found["ends"] = g.predecessors(0), g.successors(0), g.find_edges(some), g.edge_ids([0], [1], return_uv=True)
    return found


def leaves(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple)):
        return [leaf for item in thing for leaf in leaves(item)]
    if isinstance(thing, torch.Tensor) and thing.is_sparse:
        return [thing._indices()]
    if isinstance(thing, vgraph.sparse.SparseMatrix):
        return [ids for ids in (thing.indices(), *thing.csr(), *thing.csc()) if ids is not None]
    return [thing]


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("kind", ["plain", "batch", "part"])
def test_what_is_handed_out_may_be_written_into(kind: str, idtype: torch.dtype) -> None:
    """Native loops trust a graph's ids: no tensor that the user has is one of them."""

    def made() -> vgraph.Graph:
        graphs = [vgraph.graph(([0, 1, 0], [1, 2, 2]), idtype=idtype) for _ in range(3)]
        batch = vgraph.batch(graphs)
        found = {"plain": graphs[0], "batch": batch, "part": vgraph.unbatch(batch)[1]}[kind]
        found.ndata["h"] = torch.ones(found.num_nodes(), 1)
        return found

    g, untouched = made(), made()
    for round_ in range(2):  # the second time what is kept is handed out
        for name, thing in handed_out(g).items():
            for leaf, other in zip(leaves(thing), leaves(handed_out(untouched)[name]), strict=True):
                assert leaf.tolist() == other.tolist(), (name, round_)
                leaf += 2**20
    src, dst = g.edges()
    assert (src.tolist(), dst.tolist()) == tuple(end.tolist() for end in untouched.edges())
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
    untouched.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
    assert torch.equal(g.ndata["h"], untouched.ndata["h"])


def test_what_a_graph_is_made_of_may_be_written_into() -> None:
    src, dst = torch.tensor([0, 1]), np.array([1, 2])
    g = vgraph.graph((src, torch.from_numpy(dst)))
    src += 2**20
    dst += 2**20
    assert [end.tolist() for end in g.edges()] == [[0, 1], [1, 2]]


def test_ids_inside_a_function_that_is_not_captured() -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)

    def message(edges: Any) -> dict[str, torch.Tensor]:
        src, dst, ids = edges.edges()
        if float(edges.src["h"].sum()) > 0:  # Python's own branch: no recording has it
            for end in (src, dst, ids):
                end += 2**20
        return {"m": edges.src["h"]}

    g.update_all(message, fn.sum("m", "o"))
    assert [end.tolist() for end in g.edges()] == [[0, 1], [1, 2]]
