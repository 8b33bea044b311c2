"""Random message and reduce functions on random graphs, beside plain torch: messages by indexing, a mailbox a degree.

Forward, backward and double backward, kernels on and off, one thread and two.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import vgraph
from tests.campaign.drawn_messages import SPECS, Case, Data, Frame, make_case
from tests.campaign.judging import MOVES, Found, differences, differentiated, draw_ways, moved, rooms_of

FULL_COUNT = 10_000
SHORT_COUNT = 16
KERNELS = 0.12  # of the cases are compiled, too


# ---------------------------------------------------------------- the reference: plain torch, by indexing
class _Taken(dict[str, Tensor]):
    """Rows of features at some ids, made when asked for."""

    def __init__(self, frame: Frame, ids: Tensor | None) -> None:
        super().__init__()
        self.frame, self.ids = frame, ids

    def __missing__(self, name: str) -> Tensor:
        rows = self.frame[name]
        self[name] = rows if self.ids is None else rows[self.ids.long()]
        return self[name]


def _on_edges(data: Data, function: Any, ids: Tensor) -> tuple[Frame, Frame]:
    """What a function of the edges ``ids`` gives, and what it writes."""
    features = _Taken(data.frames["edge"], ids)
    edges = SimpleNamespace(
        src=_Taken(data.frames["src"], data.src[ids]), dst=_Taken(data.frames["dst"], data.dst[ids]), data=features
    )
    given = function(edges)
    return given, {"written": features["written"]} if "written" in features else {}


def _reduced_at(data: Data, messages: Frame, reduce: Any, ids: Tensor) -> dict[str, Tensor]:
    """One row for every destination, zeros where no edge of ``ids`` ends; a dense mailbox for each in-degree."""
    ends = data.dst[ids].long()
    degrees = torch.bincount(ends, minlength=data.num_dst)
    rows: dict[str, list[Tensor]] = {}
    places: list[Tensor] = []
    for degree in sorted(set(degrees.tolist()) - {0}):
        at = (degrees == degree).nonzero().squeeze(1)
        edges = torch.stack([(ends == vertex).nonzero().squeeze(1) for vertex in at])
        box = {name: rows_of[edges] for name, rows_of in messages.items()}
        nodes = SimpleNamespace(data=_Taken(data.frames["dst"], at), mailbox=box)
        for name, made in reduce(nodes).items():
            rows.setdefault(name, []).append(made)
        places.append(at)
    return {name: _placed(torch.cat(parts), torch.cat(places), data.num_dst) for name, parts in rows.items()}


def _placed(rows: Tensor, at: Tensor, count: int, old: Tensor | None = None) -> Tensor:
    whole = rows.new_zeros((count, *rows.shape[1:])) if old is None else old
    return whole.index_copy(0, at, rows)


def expected(case: Case, data: Data, names: Mapping[str, Any]) -> dict[str, Tensor]:
    message, reduce, apply = names["message"], names["reduce"], names["apply"]
    every = torch.arange(data.src.shape[0])
    if case.entry == "nodes":
        return apply(SimpleNamespace(data=data.frames["dst"]))
    if case.entry in ("edges", "some_edges"):
        ids = every if case.entry == "edges" else every[::2]
        given, written = _on_edges(data, message, ids)
        if case.entry == "edges":
            return given | written
        return {name: _placed(rows, ids, every.shape[0]) for name, rows in given.items()}
    if not every.shape[0]:  # as in DGL, a message function does not run where nothing is sent
        return {}
    ids = every
    if case.entry == "pull":
        ids = every[torch.isin(data.dst.long(), data.chosen)]
    elif case.entry == "push":
        ids = every[torch.isin(data.src.long(), data.chosen)]
    elif case.entry == "send":
        ids = every[::2]
    sent, written = _on_edges(data, message, ids)
    results = _reduced_at(data, sent, reduce, ids) if ids.shape[0] else {}
    if case.entry == "several":
        again = every[: every.shape[0] // 2 + 1]
        other = _reduced_at(data, _on_edges(data, message, again)[0], reduce, again)
        results = {name: rows + other[name] for name, rows in results.items()}
    if case.entry == "apply":
        fresh = {**data.frames["dst"], **results}
        results = results | apply(SimpleNamespace(data=fresh))
    return results | {f"edge {name}": rows for name, rows in written.items() if case.entry in ("update",)}


# ---------------------------------------------------------------- vgraph
def graph_of(case: Case, data: Data) -> vgraph.Graph:
    ends = (data.src, data.dst)
    if case.entry == "bipartite":
        graph = vgraph.heterograph({("s", "r", "d"): ends}, num_nodes_dict={"s": data.num_src, "d": data.num_dst})
    elif case.entry == "block":
        graph = vgraph.create_block(ends, num_src_nodes=data.num_src, num_dst_nodes=data.num_dst)
    elif case.entry == "several":
        half = data.src.shape[0] // 2 + 1
        pairs = {("n", "r", "n"): ends, ("n", "t", "n"): (data.src[:half], data.dst[:half])}
        graph = vgraph.heterograph(pairs, num_nodes_dict={"n": data.num_dst})
        graph.edges["r"].data.update(data.frames["edge"])
        graph.edges["t"].data.update({name: rows[:half] for name, rows in data.frames["edge"].items()})
        graph.ndata.update(data.frames["dst"])
        return graph
    elif case.entry == "batch":
        return _batched(data)
    else:
        graph = vgraph.graph(ends, num_nodes=data.num_dst)
    graph.srcdata.update(data.frames["src"])
    graph.dstdata.update(data.frames["dst"])
    graph.edata.update(data.frames["edge"])
    return graph


def _batched(data: Data) -> vgraph.Graph:
    """The whole, and a copy without edges before and behind it, whose rows are left out of what is compared."""
    whole = vgraph.graph((data.src, data.dst), num_nodes=data.num_dst)
    none = vgraph.graph((data.src[:0], data.dst[:0]), num_nodes=2)
    parts = [none, whole, none.clone()]
    for graph in parts:
        graph.ndata.update(
            {n: t if graph is whole else t.detach().new_zeros((2, *t.shape[1:])) for n, t in data.frames["dst"].items()}
        )
        graph.edata.update({n: t if graph is whole else t.detach()[:0] for n, t in data.frames["edge"].items()})
    return vgraph.batch(parts)


def found_by(case: Case, data: Data, names: Mapping[str, Any]) -> dict[str, Tensor]:
    graph = graph_of(case, data)
    message, reduce, apply = names["message"], names["reduce"], names["apply"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of graphs without edges
        if case.entry == "nodes":
            graph.apply_nodes(apply)
        elif case.entry == "edges":
            graph.apply_edges(message)
        elif case.entry == "some_edges":
            graph.apply_edges(message, edges=torch.arange(data.src.shape[0])[::2])
        elif case.entry == "pull":
            graph.pull(data.chosen, message, reduce)
        elif case.entry == "push":
            graph.push(data.chosen, message, reduce)
        elif case.entry == "send":
            graph.send_and_recv(torch.arange(data.src.shape[0])[::2], message, reduce)
        elif case.entry == "several":
            graph.multi_update_all({"r": (message, reduce), "t": (message, reduce)}, "sum")
        else:
            graph.update_all(message, reduce, *([apply] if case.entry == "apply" else []))
    if case.entry in ("edges", "some_edges"):
        return _new(graph.edata)
    frame = graph.ndata if case.entry == "several" else graph.dstdata
    results = _new(frame)
    if case.entry == "batch":
        results = {n: t[2:-2] for n, t in results.items()}
    if case.entry == "update":
        results |= {f"edge {n}": t for n, t in _new(graph.edata).items()}
    return results


def _new(frame: Mapping[str, Tensor]) -> dict[str, Tensor]:
    given = {name for specs in SPECS.values() for name, _ in specs}
    return {name: rows for name, rows in frame.items() if name not in given}


# ---------------------------------------------------------------- a case
def check(seed: int) -> str | None:
    """What is wrong with the case of a seed."""
    return check_case(seed, make_case(seed), KERNELS)


def check_case(seed: int, case: Case, kernels: float) -> str | None:
    """What is wrong with a case, of which that part is compiled, too."""
    draw = random.Random(f"ways of {seed}")
    is_low = any(t.dtype == torch.float32 != case.dtype for data in case.data for t in data.leaves())
    order = (
        1 if is_low else draw.choice((1, 2, 2))
    )  # what is rounded on the way has no second derivative to the last bit
    try:
        try:
            exact = [_exact(case, data, order) for data in case.data]
        except RuntimeError:  # torch has no second derivative of some operators, as of flattened empty slots
            order = 1
            exact = [_exact(case, data, order) for data in case.data]
    except Exception:
        return told(seed, case, "the reference", [traceback.format_exc(limit=-3)])
    for way in draw_ways(draw, kernels):
        with way.running():
            names = case.functions(case.dtype, reference=False)
            for number, data in enumerate(case.data):
                leaves = [*data.leaves(), *names["parameters"]]

                def evaluate(data: Data = data, names: Mapping[str, Any] = names) -> dict[str, Tensor]:
                    return found_by(case, data, names)

                try:
                    found = differentiated(evaluate, leaves, order)
                except Exception:
                    return told(seed, case, f"{way}, graph {number}", [traceback.format_exc(limit=-4)])
                wrong = differences(found, exact[number])
                if wrong:
                    wrong = differences(found, exact[number], _rooms(case, data, order, exact[number]))
                if wrong:
                    return told(seed, case, f"{way}, graph {number}", wrong)
    return None


def _exact(
    case: Case, data: Data, order: int, dtype: torch.dtype = torch.float64, eps: float = 0.0, draw: int = 0
) -> Found:
    """The reference, on the same numbers in ``dtype``, moved by ``eps``."""
    names = case.functions(dtype, reference=True)
    if eps:
        data = data.converted(lambda t: moved(t, eps, draw))
    elif dtype != case.dtype or dtype == torch.float64:
        data = data.converted(lambda t: t.detach().to(dtype).requires_grad_(t.requires_grad))
    return differentiated(lambda: expected(case, data, names), [*data.leaves(), *names["parameters"]], order)


def _rooms(case: Case, data: Data, order: int, exact: Found) -> list[float]:
    eps = torch.finfo(case.dtype).eps
    double = data.converted(lambda t: t.detach().double().requires_grad_(t.requires_grad))
    others = [_exact(case, double, order, eps=4 * eps, draw=draw) for draw in range(MOVES)]
    if case.dtype != torch.float64:
        others.append(_exact(case, data, order, dtype=case.dtype))
    return rooms_of(exact, others)


def told(seed: int, case: Case, where: str, wrong: list[str]) -> str:
    return "\n".join([f"seed {seed}, {case.entry}, {case.dtype}, {where}:", *wrong, case.text, ""])


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    return [found for case in range(seed, seed + count) if (found := check(case)) is not None]
