"""Segments: reductions of rows by group, as message passing from rows to their groups.

Takes: the group of every row. Gives: one row a group. Runs at every call.
Source: DGL section 3 (readouts); a row is an edge that ends in its group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.api.messages.groups import Groups, segments
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import FeatureError, FunctionError
from vgraph.ir.topology import Topology

_MOST_GROUPS, _MOST_ROWS = 1 << 10, 1 << 14  # of what is kept by the lengths of its groups


def groups_in_graph(topology: Topology, of_edges: bool, count: int, num_rows: int) -> Any:
    """The graphs of a batch as groups of their vertices, or edges, inside ``torch.compile``."""
    handle, ids = compiled_calls.groups(topology.handle, of_edges, num_rows)
    return Groups(handle, ids, count, count, num_rows)


def segments_of_lengths(lengths: Tensor) -> Topology:
    """Rows that lie group by group; ``lengths`` (groups,). FeatureError: they are no whole numbers from 0 up."""
    if lengths.is_floating_point() or lengths.dim() != 1 or (lengths.numel() and int(lengths.min()) < 0):
        fact = f"lengths of segments are {lengths.dtype} {tuple(lengths.shape)}: {lengths.reshape(-1)[:5].tolist()}"
        raise FeatureError(fact, cure="give one whole number from 0 up a segment")
    if lengths.device.type == "cpu" and len(lengths) <= _MOST_GROUPS and not torch.compiler.is_compiling():
        counts = tuple(lengths.tolist())
        return (_kept_segments if sum(counts) <= _MOST_ROWS else _segments_of)(counts)
    return _rows_in_turn(lengths)


def _rows_in_turn(lengths: Tensor) -> Topology:
    groups = torch.arange(lengths.shape[0], device=lengths.device)
    return segments(torch.repeat_interleave(groups, lengths.long()), lengths.shape[0])


def _segments_of(counts: tuple[int, ...]) -> Topology:
    with torch.inference_mode(False):  # a training step may come later
        return _rows_in_turn(torch.tensor(counts, dtype=torch.int64, device="cpu"))


# A model that adds up its small graphs asks for the same lengths at every step, or at every epoch.
_kept_segments = lru_cache(maxsize=64)(_segments_of)


def _send(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": edges.data["x"]}


def _sum(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": nodes.mailbox["m"].sum(1)}


def _mean(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": nodes.mailbox["m"].mean(1)}


def _max(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": torch.max(nodes.mailbox["m"], 1).values}


def _min(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": torch.min(nodes.mailbox["m"], 1).values}


def _peak_and_total(nodes: NodeBatch) -> dict[str, Tensor]:
    """The largest row and the logarithm of the sum beside it: apart, as a peak of -1e9 has no room for the other."""
    rows = nodes.mailbox["m"]
    peak = torch.max(rows.detach(), 1).values
    return {"peak": peak, "total": torch.exp(rows - peak.unsqueeze(1)).sum(1).log()}


_REDUCTIONS = {"sum": _sum, "mean": _mean, "max": _max, "min": _min}
for _reduction in _REDUCTIONS.values():
    vars(_reduction)["is_total"] = True  # gives 0 for no rows by itself


def reduce_segments(topology: Topology, rows: Tensor, reducer: str) -> Tensor:
    """``sum``, ``mean``, ``max`` or ``min`` of the rows of every group, (groups, ...); 0 of none."""
    if reducer not in _REDUCTIONS:
        raise FunctionError(f"there is no reducer {reducer!r}", cure=f"one of {', '.join(_REDUCTIONS)}")
    check_rows(topology, rows)
    return propagate(topology, {"src": {}, "dst": {}, "edge": {"x": rows}}, _send, _REDUCTIONS[reducer])["x"]


def _normalise(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"x": torch.exp(edges.data["x"] - edges.dst["peak"] - edges.dst["total"])}


def softmax_segments(topology: Topology, rows: Tensor) -> Tensor:
    """The softmax of the rows of every group, (rows, ...)."""
    check_rows(topology, rows)
    if not (rows.is_floating_point() or rows.is_complex()):
        rows = rows.long()  # differences of narrower whole numbers wrap around
    whole = propagate(topology, {"src": {}, "dst": {}, "edge": {"x": rows}}, _send, _peak_and_total)
    return evaluate_edges(topology, {"src": {}, "dst": whole, "edge": {"x": rows}}, _normalise)["x"]


def check_rows(topology: Topology, rows: Tensor) -> None:
    """FeatureError: there is not one row an edge."""
    if rows.ndim == 0 or rows.shape[0] != topology.num_edges:
        fact = f"there are {tuple(rows.shape)[:1]} rows for {topology.num_edges} places"
        raise FeatureError(fact, cure="give one row for each")
