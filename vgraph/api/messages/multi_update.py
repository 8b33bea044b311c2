"""Messages of several edge types at once.

Takes: functions by edge type. Gives: new features in the graph's frames. Runs at every call.
Source: DGL section 3 (heterogeneous graphs: what arrives along several types is combined).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from vgraph.api.messages import update_all as updates
from vgraph.api.messages.batches import OfEdges, OfNodes, check_callable
from vgraph.api.messages.every_type import best_of
from vgraph.api.messages.halo_rows import shared_arrivals
from vgraph.errors import FunctionError
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import EdgeType
from vgraph.ir.topology import Topology

Results = dict[str, Tensor]
Functions = tuple[OfEdges, OfNodes] | tuple[OfEdges, OfNodes, OfNodes]
Merge = Callable[[Sequence[Tensor]], Tensor]

_MERGES: dict[str, Merge] = {
    "sum": lambda rows: torch.stack(list(rows)).sum(0),
    "mean": lambda rows: torch.stack(list(rows)).mean(0),
    "max": lambda rows: torch.stack(list(rows)).max(0).values,
    "min": lambda rows: torch.stack(list(rows)).min(0).values,
    "stack": lambda rows: torch.stack(list(rows), 1),
}


def multi_update_all(
    g: GraphData,
    etype_dict: Mapping[str, Functions] | Mapping[EdgeType, Functions],
    cross_reducer: str | Merge,
    apply_node_func: OfNodes | None = None,
) -> None:
    """What ``Graph.multi_update_all`` does; the method's docstring is the manual."""
    merge = _MERGES.get(cross_reducer) if isinstance(cross_reducer, str) else cross_reducer
    if merge is None:
        cure = f"one of {', '.join(_MERGES)}, or a function of a list of tensors"
        raise FunctionError(f"there is no cross reducer {cross_reducer!r}", cure=cure)
    _check_functions(etype_dict)
    if apply_node_func is not None:
        check_callable(apply_node_func)
    with g.all_or_nothing():
        _update(g, etype_dict, cross_reducer, merge, apply_node_func)


def _update(
    g: GraphData,
    etype_dict: Mapping[str, Functions] | Mapping[EdgeType, Functions],
    cross_reducer: str | Merge,
    merge: Merge,
    apply_node_func: OfNodes | None,
) -> None:
    found: dict[EdgeType, Results] = {}
    keys = [g.to_canonical_etype(etype) for etype in etype_dict]
    with ExitStack() as stack:
        if keys:
            stack.enter_context(shared_arrivals(g.relation(keys[0])[0], (key[0] for key in keys)))
        for key, (message, reduce, *apply) in zip(keys, etype_dict.values(), strict=True):
            found[key] = updates.results_of(g, message, reduce, apply[0] if apply else None, key)
    is_best = _is_best_of_best(cross_reducer, etype_dict.values())
    for ntype in dict.fromkeys(key[2] for key in found):
        reaching = [key for key in g.canonical_etypes if key in found and key[2] == ntype]
        parts, frame = [found[key] for key in reaching], g.dst_frames[ntype]
        if is_best and len(parts) > 1:
            frame.update(_best(str(cross_reducer), parts, [g.relation(key)[0] for key in reaching]))
        else:
            frame.update(_merged(parts, merge, is_stack=cross_reducer == "stack"))
        if apply_node_func is not None:
            updates.apply_to_type(g, ntype, apply_node_func)


def _is_best_of_best(cross_reducer: object, functions: Iterable[Functions]) -> bool:
    """Whether the largest of the largest is asked for (or smallest): the zeros of nodes without messages are none."""
    return cross_reducer in ("max", "min") and all(
        len(parts) == 2 and updates.reduction_of(parts[1]) == cross_reducer for parts in functions
    )


def _check_functions(by_type: object) -> None:
    if not isinstance(by_type, Mapping):
        fact = f"the functions by edge type are a {type(by_type).__name__}"
        raise FunctionError(fact, cure="pass {edge type: (message, reduce)}")
    for etype, functions in by_type.items():
        if not isinstance(functions, tuple) or not 2 <= len(functions) <= 3:
            fact = f"{etype!r} has no message and reduce function"
            raise FunctionError(fact, cure="pass (message, reduce)")


def _best(name: str, parts: Sequence[Results], topologies: Sequence[Topology]) -> Results:
    found: Results = {}
    for column in dict.fromkeys(column for part in parts for column in part):
        own = [(part[column], t.in_degrees > 0) for part, t in zip(parts, topologies, strict=True) if column in part]
        found[column] = best_of(name, [rows for rows, _ in own], [reached for _, reached in own])
    return found


def _merged(parts: Sequence[Results], merge: Merge, *, is_stack: bool) -> Results:
    if len(parts) == 1 and not is_stack:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: merge([part[name] for part in parts if name in part]) for name in names}
