"""A call that raises leaves features, edges and messages as they were, wherever it raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.errors import FeatureError, FunctionError, GraphError

Call = Callable[[vgraph.Graph], object]
SUM = (fn.copy_u("h", "m"), fn.sum("m", "x"))
ALL = {"x": SUM, "y": SUM, "z": SUM}


class OwnError(Exception):
    """What functions here raise."""


def of_one_type() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 2], [2, 2, 0, 1]))
    g.ndata["h"], g.edata["w"] = torch.ones(3, 2), torch.ones(4, 1)
    return g


def of_types() -> vgraph.Graph:
    g = vgraph.heterograph(
        {("a", "x", "b"): ([0, 1], [0, 0]), ("b", "y", "a"): ([0], [1]), ("a", "z", "a"): ([0], [1])}
    )
    g.nodes["a"].data["h"], g.nodes["b"].data["h"] = torch.ones(2, 2), torch.ones(1, 2)
    return g


def state_of(g: vgraph.Graph) -> object:
    frames = [*g.src_frames.values(), *g.edge_frames.values()]
    sent = {key: (ids.tolist(), {n: r.tolist() for n, r in rows.items()}) for key, (ids, rows) in g.messages.items()}
    ends = [[end.tolist() for end in g.edges(etype=etype)] for etype in g.canonical_etypes]
    return [{name: rows.tolist() for name, rows in frame.items()} for frame in frames], sent, ends


def fail(_: object) -> dict[str, Tensor]:
    raise OwnError


def fail_at(number: int) -> Callable[[NodeBatch], dict[str, Tensor]]:
    calls = list[None]()

    def apply(nodes: NodeBatch) -> dict[str, Tensor]:
        calls.append(None)
        if len(calls) >= number:
            raise OwnError
        return {"q": nodes.data["h"]}

    return apply


def set_and_send(edges: EdgeBatch) -> dict[str, Tensor]:
    edges.data["z"] = edges.src["h"]
    return {"m": edges.src["h"]}


def without_name(rows: Any) -> dict[Any, Tensor]:
    return {"q": rows.data[next(iter(rows.data))], 3: rows.data[next(iter(rows.data))]}


def elsewhere(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"q": nodes.data["h"], "r": nodes.data["h"].to("meta")}


def receive(apply: Callable[[NodeBatch], dict[str, Tensor]]) -> Call:
    return lambda g: g.recv([0, 2], SUM[1], apply)


WRITES = (set_and_send, SUM[1])
CALLS: dict[str, tuple[type[Exception], Call]] = {
    "apply of the first type": (OwnError, lambda g: g.multi_update_all(ALL, "sum", fail)),
    "apply of the second type": (OwnError, lambda g: g.multi_update_all(ALL, "sum", fail_at(2))),
    "apply of one edge type": (OwnError, lambda g: g.multi_update_all({"x": WRITES, "y": (*SUM, fail)}, "sum")),
    "cross reducer": (OwnError, lambda g: g.multi_update_all({**ALL, "x": WRITES}, fail)),  # pyright: ignore
    "its rows": (FeatureError, lambda g: g.multi_update_all(ALL, lambda rows: torch.ones(7))),
    "update_all of all types": (OwnError, lambda g: g.update_all(*SUM, fail_at(2))),
    "edges that are set": (OwnError, lambda g: g.update_all(*WRITES, fail)),
    "a name": (FunctionError, lambda g: g.update_all(*SUM, without_name)),
    "a name of edges": (FunctionError, lambda g: g.apply_edges(without_name)),
    "a name of some edges": (FunctionError, lambda g: g.apply_edges(without_name, [0])),
    "a name of nodes": (FunctionError, lambda g: g.apply_nodes(without_name)),
    "rows elsewhere": (FeatureError, lambda g: g.apply_nodes(elsewhere, [0])),
    "pull": (FunctionError, lambda g: g.pull([0, 1], *SUM, without_name)),
    "pull elsewhere": (FeatureError, lambda g: g.pull([0, 1], *SUM, elsewhere)),
    "push": (FeatureError, lambda g: g.push([0, 1], *SUM, elsewhere)),
    "send_and_recv": (FunctionError, lambda g: g.send_and_recv([0, 1], *SUM, without_name)),
    "prop_nodes": (GraphError, lambda g: g.prop_nodes([[0], [9]], *SUM)),
    "prop_nodes apply": (OwnError, lambda g: g.prop_nodes([[0], [1]], *SUM, fail_at(2))),
    "prop_edges": (GraphError, lambda g: g.prop_edges([[0], [9]], *SUM)),
    "recv": (OwnError, receive(fail)),
    "recv a name": (FunctionError, receive(without_name)),
    "update": (FeatureError, lambda g: g.ndata.update({"q": torch.ones(3), "r": torch.ones(2)})),
    "update of rows": (FeatureError, lambda g: g.nodes[[0]].data.update({"q": torch.ones(1), "r": torch.ones(2)})),
    "update of types": (
        FeatureError,
        lambda g: g.ndata.update({"q": {"a": torch.ones(2)}, "r": {"a": torch.ones(2), "b": torch.ones(3)}}),
    ),
}
OF_TYPES = {*list(CALLS)[:6], "update of types"}
OF_SENT = {"recv", "recv a name"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_raises_has_set_nothing(name: str) -> None:
    g, (error, call) = of_types() if name in OF_TYPES else of_one_type(), CALLS[name]
    if name in OF_SENT:
        g.send([0, 1, 2], SUM[0])
    before = state_of(g)
    with pytest.raises(error):
        call(g)
    assert state_of(g) == before


def test_apply_functions_of_all_types_know_the_type_of_their_nodes() -> None:
    seen = list[str]()

    def apply(nodes: NodeBatch) -> dict[str, Tensor]:
        seen.append(nodes.ntype)
        return {"k": nodes.data["x"]}

    of_types().multi_update_all(ALL, "sum", apply)
    of_types().update_all(*SUM, apply)
    assert seen == ["b", "a", "a", "b"]


@pytest.mark.parametrize("given", [3, torch.ones(7, 7)])
def test_an_initializer_that_gives_no_such_rows_is_told(given: Any) -> None:
    g = of_one_type()
    g.set_n_initializer(lambda *_: given)
    before = state_of(g)
    for change in (lambda: g.add_nodes(1), lambda: g.add_edges(0, 7), lambda: g.pull([0], *SUM)):
        with pytest.raises(FeatureError, match="the initializer of the node feature") as caught:
            change()
        assert __file__ in caught.value.line and state_of(g) == before


def test_an_edit_that_raises_leaves_features_shared() -> None:
    g = of_types()
    part = g["x"]
    with pytest.raises(FeatureError):
        g.add_nodes(1, {"h": torch.ones(2, 2)}, ntype="a")
    part.nodes["a"].data["new"] = torch.ones(2)
    assert "new" in g.nodes["a"].data


def test_what_is_written_within_stands_unless_it_raises() -> None:
    g = of_one_type()
    with g.all_or_nothing():
        g.ndata["q"] = torch.ones(3)
        g.add_nodes(1)
    assert g.num_nodes() == 4 and "q" in g.ndata
    with pytest.raises(OwnError), g.all_or_nothing():
        g.remove_nodes([0])
        del g.ndata["q"]
        raise OwnError
    assert g.num_nodes() == 4 and "q" in g.ndata


def test_updates_without_names_are_refused() -> None:
    for wrong in (3, None, [1], "ab"):
        with pytest.raises(vgraph.VGraphError):
            of_one_type().ndata.update(wrong)
