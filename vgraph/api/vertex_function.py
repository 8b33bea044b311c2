"""VertexFunction: a static function of one vertex, evaluated over trees, sequences and DAGs.

Takes: a module whose forward sees one batch of vertices. Gives: one row a vertex; tempo: every call.
Source: Cavs section 3.1 (gather, scatter, pull, push).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vgraph.api.capture import Captured, Features, family_of, find_captured, function_key
from vgraph.api.derive import Session, Spec
from vgraph.api.graph import Graph
from vgraph.api.serial import run_serially
from vgraph.api.tracer import CaptureError, Tracer, sizes_for, user_line
from vgraph.api.vertex import StateSpec, Vertex, VertexBody
from vgraph.errors import ChildIndexError, FeatureError, FunctionError, NameLookupError, VGraphError
from vgraph.ir.program import EDGE, GRAPH, VERTEX, Space, subset
from vgraph.ir.topology import Topology
from vgraph.scheduler.frontiers import levels

logger = logging.getLogger("vgraph")


@dataclass(frozen=True, eq=False)
class At:
    """A feature of some vertices only; see ``at``."""

    rows: Tensor
    ids: Tensor


def at(rows: Tensor, ids: Tensor) -> At:
    """A vertex feature given for some vertices only; all others see zeros.

    Operators on it run on the given rows; what they do to zero is computed once.

    Args:
        rows: (k, ...), one row for each of ``ids``.
        ids: (k,) distinct vertex ids.

    Raises:
        FeatureError: the two lengths differ, or an id stands twice.

    >>> import torch, vgraph
    >>> words = vgraph.at(torch.ones(2, 4), ids=torch.tensor([0, 2]))
    """
    if rows.shape[:1] != ids.shape or ids.dim() != 1:
        raise FeatureError(
            f"at(rows, ids) has {rows.shape[0]} rows for ids of shape {tuple(ids.shape)}",
            cure="give one row for every id", line=user_line(),
        )  # fmt: skip
    return At(rows, ids)


class VertexFunction(nn.Module):
    """A module whose ``forward(v)`` says what one vertex does; calling it evaluates a whole graph.

    ``forward`` sees one batch of vertices ``v`` (see ``vgraph.Vertex``). Edges run from child to
    parent; a vertex is evaluated after all its children. Calling the module with a graph and
    features returns a mapping from pushed names to tensors of one row a vertex, in vertex-id order.

    Args:
        states: widths (or row shapes) of scattered states, where they cannot be inferred.
        direction: "forward", or "reverse" to evaluate parents before children.
        policy: "frontier" evaluates all vertices whose children are done together, "serial" one
            vertex at a time (Cavs' baseline).

    Raises:
        CycleError: the graph has a cycle.
        FeatureError, NameLookupError: a feature is missing or has the wrong number of rows.

    Source: Cavs section 3.1.

    >>> import torch, vgraph
    >>> class Sum(vgraph.VertexFunction):
    ...     def forward(self, v):
    ...         total = v.pull("x") + v.gather()["s"].sum()
    ...         v.scatter(s=total)
    ...         v.push(total=total)
    >>> tree = vgraph.graph(([0, 1], [2, 2]))
    >>> Sum()(tree, x=torch.tensor([[1.0], [2.0], [4.0]]))["total"]
    tensor([[1.],
            [2.],
            [7.]])
    """

    def __init__(
        self,
        *,
        states: Mapping[str, int | tuple[int, ...]] | None = None,
        direction: str = "forward",
        policy: str = "frontier",
    ) -> None:
        super().__init__()
        if direction not in ("forward", "reverse"):
            raise FunctionError(f"there is no direction {direction!r}", cure="forward or reverse")
        self.direction, self.policy = direction, policy
        self._given_states = {
            name: (shape,) if isinstance(shape, int) else tuple(shape)
            for name, shape in (states or {}).items()
        }

    def forward(self, v: Vertex) -> None:
        """What one batch of vertices does; to be written by the user."""
        raise FunctionError(
            f"{type(self).__name__} has no forward(v)",
            cure="define forward(self, v) with gather, pull, scatter, push",
        )

    def __call__(self, graph: Graph, **features: Any) -> dict[str, Tensor]:
        """Evaluates every vertex of ``graph``; ``features`` are looked up before the graph's frames."""
        if self._forward_hooks or self._forward_pre_hooks:
            raise FunctionError(
                f"{type(self).__name__} has forward hooks, which a vertex function does not run",
                cure="remove them, or put the work into forward", line=user_line(),
            )  # fmt: skip
        topology = graph.topology if self.direction == "forward" else graph.topology.reversed
        levels(topology)  # a cycle is refused before anything else happens
        return _evaluate(self, _Feed(graph, topology, features))


class _Feed:
    """The features of one call: keywords first, then the graph's frames."""

    def __init__(self, graph: Graph, topology: Topology, given: Mapping[str, Any]) -> None:
        self.graph, self.topology, self.given = graph, topology, given
        self.subsets: dict[str, tuple[Tensor, int]] = {}
        self._columns: dict[str, Tensor] = {}
        for name, value in given.items():
            if isinstance(value, At):
                self._add_subset(name, value)

    def _add_subset(self, name: str, value: At) -> None:
        count, ids = self.topology.num_dst, value.ids
        inside = bool(((ids >= 0) & (ids < count)).all())
        if not inside or bool((torch.bincount(ids, minlength=1) > 1).any()):
            raise FeatureError(
                f"the ids of at(...) for {name!r} are not distinct vertices of a graph of {count}",
                cure="give every id once, from 0 to num_nodes - 1", line=user_line(),
            )  # fmt: skip
        place = torch.full((count,), ids.shape[0], dtype=torch.int64, device=ids.device)
        place[ids] = torch.arange(ids.shape[0], device=ids.device)
        zeros = value.rows.new_zeros((1, *value.rows.shape[1:]))
        self.subsets[f"@{name}"] = (place, ids.shape[0] + 1)
        self._columns[f"subset:{name}"] = torch.cat([value.rows, zeros])

    def full_name(self, kind: str, name: str) -> str:
        """The name of an input; raises where there is no such feature."""
        if kind == "vertex" and f"subset:{name}" in self._columns:
            return f"subset:{name}"
        if self.find(f"{kind}:{name}") is None:
            frame, words = _frame(self.graph, kind)
            raise NameLookupError(
                f"there is no {words} feature {name!r}",
                cure=f"pass {name}=... in the call, or set one of the graph's ({sorted(frame)} are there)",
                line=user_line(),
            )
        return f"{kind}:{name}"

    def find(self, full: str) -> Tensor | None:
        known = self._columns.get(full)
        if known is not None:
            return known
        kind, _, name = full.partition(":")
        value = self.given.get(name)
        if value is None and kind != "subset":
            value = _frame(self.graph, kind)[0].get(name)
        if not isinstance(value, Tensor):
            return None
        self._check(kind, name, value)
        self._columns[full] = value
        return value

    def _check(self, kind: str, name: str, value: Tensor) -> None:
        topology = self.topology
        wanted = {
            "vertex": topology.num_dst,
            "edge": topology.num_edges,
            "graph": len(topology.graph_sizes or (1,)),
        }[kind]
        if value.dim() == 0 or value.shape[0] != wanted:
            raise FeatureError(
                f"the {kind} feature {name!r} has shape {tuple(value.shape)} for {wanted} rows",
                cure=f"give one row for every {kind}", line=user_line(),
            )  # fmt: skip
        if value.device != topology.src.device:
            raise FeatureError(
                f"the {kind} feature {name!r} is on {value.device}, the graph on {topology.src.device}",
                cure="move one of them with .to(...)", line=user_line(),
            )  # fmt: skip

    def spec(self, full: str) -> Spec:
        value = self.find(full)
        assert value is not None, full
        kind, _, name = full.partition(":")
        return Spec(_space(kind, name), tuple(value.shape[1:]), value.dtype, value.requires_grad)


def _space(kind: str, name: str) -> Space:
    return {"vertex": VERTEX, "edge": EDGE, "graph": GRAPH}.get(kind) or subset(name)


def _frame(graph: Graph, kind: str) -> tuple[Mapping[str, Tensor], str]:
    return {
        "vertex": (graph.ndata, "vertex"),
        "edge": (graph.edata, "edge"),
        "graph": (graph.gdata, "graph"),
    }.get(kind, (graph.ndata, "vertex"))


def _evaluate(function: VertexFunction, feed: _Feed) -> dict[str, Tensor]:
    family = family_of((type(function), function_key(function.forward)))
    features = Features(feed.find, feed.spec)
    refused = family.refused.get(type(function))
    if refused is None:
        try:
            roots = (function.forward,)
            bound, tensors = find_captured(
                family, roots, features, lambda: _make_body(function, feed)
            )
        except CaptureError as error:
            refused = family.refused[type(function)] = error
            logger.info(
                "%s runs one vertex at a time: %s %s",
                type(function).__name__,
                error.reason,
                error.line,
            )
        else:
            _check_children(bound.captured, feed.topology)
            outputs: Any = bound(tensors, feed.topology, function.policy, feed.subsets)
            return dict(zip(bound.captured.facts, outputs, strict=True))
    return run_serially(function, feed, _given_states(function))


def _check_children(captured: Captured, topology: Topology) -> None:
    """``gather(k)`` without a default needs vertices with no children at all, or more than k."""
    if not captured.num_slots_needed:
        return
    degrees = topology.keep("degrees", lambda: torch.unique(topology.in_degrees).tolist())
    for k in captured.num_slots_needed:
        short = [d for d in degrees if 0 < d <= k]
        if short:
            vertex = int((topology.in_degrees == short[0]).nonzero()[0])
            raise ChildIndexError(
                f"gather({k}) without a default, but vertex {vertex} has {short[0]} "
                f"{'child' if short[0] == 1 else 'children'}",
                cure=f"gather({k}, default=0.0) gives that value where a vertex has some children but too few",
            )


# ---------------------------------------------------------------- states
def _given_states(function: VertexFunction) -> dict[str, StateSpec]:
    dtype = next(
        (p.dtype for p in function.parameters() if p.is_floating_point()), torch.get_default_dtype()
    )
    return {name: StateSpec(shape, dtype) for name, shape in function._given_states.items()}  # pyright: ignore[reportPrivateUsage]


def _make_body(function: VertexFunction, feed: _Feed) -> VertexBody:
    subsets = tuple(subset(name[1:]) for name in feed.subsets)

    def body_of(states: Mapping[str, StateSpec]) -> VertexBody:
        return VertexBody(function, states, feed.full_name, subsets)

    return body_of(_infer_states(function, body_of, feed.spec, subsets))


class _Unknown(dict[str, StateSpec]):
    """States before the first evaluation: every name is there, one column wide."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def get(self, key: str, default: Any = None) -> Any:
        return StateSpec((1,), self.dtype)


def _infer_states(
    function: VertexFunction,
    body_of: Callable[[Mapping[str, StateSpec]], VertexBody],
    specs: Any,
    subsets: Any,
) -> Mapping[str, StateSpec]:
    """States as an evaluation scatters them when children are absent; checked by another one."""
    given = _given_states(function)
    dtype = next(
        (p.dtype for p in function.parameters() if p.is_floating_point()), torch.get_default_dtype()
    )
    states: Mapping[str, StateSpec] = given or _Unknown(dtype)
    for widens in (not given, False, False):
        body = body_of(states)
        try:
            _dry_run(body, specs, subsets, widens=widens)
        except (VGraphError, CaptureError):
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            if given or (not widens and isinstance(states, dict) and states == body.seen):
                raise
            raise _ask_for_states(
                function, f"evaluating it without children fails: {error}"
            ) from error
        if not widens and all(body.seen.get(k) == s for k, s in states.items()):
            return states
        states = body.seen
    raise _ask_for_states(function, "the shapes of its states depend on those of its children")


def _dry_run(body: VertexBody, specs: Any, subsets: tuple[Space, ...], *, widens: bool) -> None:
    tracer = Tracer(sizes_for(False, subsets)[0])
    session = Session(tracer, specs, mailbox=False)
    session.widens = widens
    with tracer:
        body.run(session)


def _ask_for_states(function: VertexFunction, fact: str) -> FunctionError:
    return FunctionError(
        f"the widths of the states of {type(function).__name__} cannot be inferred: {fact}",
        cure='give them: super().__init__(states={"h": width})',
    )
