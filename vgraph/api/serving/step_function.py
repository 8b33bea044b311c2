"""StepFunction: a vertex function on one frontier of new vertices, whose children's states are given.

Takes: a vertex function, features of a step, states of children. Gives: what it pushes and scatters, with gradient.
Runs at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.frontier_body import FrontierBody, frontier_body
from vgraph.api.serving.new_frontiers import NewFrontier
from vgraph.api.vertex.call_features import Feed
from vgraph.api.vertex.function import VertexFunction, check_children, say_serial
from vgraph.api.vertex.infer_states import has_fractions
from vgraph.api.vertex.serial import known_states, run_frontier
from vgraph.capture.capture import Captured, family_of, find_captured
from vgraph.capture.capture_cache import function_key
from vgraph.capture.errors import CaptureError
from vgraph.capture.features import Features
from vgraph.capture.refusals import without_frames
from vgraph.capture.session import Spec
from vgraph.errors import DTypeError, FeatureError
from vgraph.ir.space import EDGE
from vgraph.ir.upload import send

Rows = dict[str, Tensor]  # by name
_BELOW = "below:"


class FrontierFeed(Feed):
    """The rows of a step's features that belong to one frontier, and its children's states, a row an edge."""

    def __init__(self, step: Feed, frontier: NewFrontier, num_old: int, state_of: Callable[[str, int], Tensor]) -> None:
        super().__init__(Graph(), frontier.topology, {})
        self.step, self.frontier, self.state_of = step, frontier, state_of
        self.vertex_ids = frontier.vertices + num_old
        self.nothing: dict[str, Tensor] = {}  # states where there are no children
        self._rows: Rows = {}

    def full_name(self, kind: str, name: str) -> str:
        return self.step.full_name(kind, name)

    def find(self, full: str) -> Tensor | None:
        if full not in self._rows:
            found = self._below(full.removeprefix(_BELOW)) if full.startswith(_BELOW) else self._selected(full)
            if found is None:
                return None
            self._rows[full] = found
        return self._rows[full]

    def spec(self, full: str) -> Spec:
        found = self.find(full)
        assert found is not None, full
        return Spec.of(EDGE, found) if full.startswith(_BELOW) else super().spec(full)

    def states_below(self, names: Iterable[str]) -> Rows:
        """The states of the children by name; none where there are no children."""
        return {name: self._below(name) for name in names} if self.frontier.children else {}

    def _below(self, name: str) -> Tensor:
        rows = [self.state_of(name, child) for child in self.frontier.children]
        return torch.stack(rows) if rows else self.nothing[name]

    def _selected(self, full: str) -> Tensor | None:
        rows = self.step.find(full)
        ids = {"vertex": self.frontier.vertices, "edge": self.frontier.edges}.get(full.partition(":")[0])
        if rows is None or ids is None or (len(ids) == len(rows) and (ids[1:] > ids[:-1]).all()):
            return rows
        return rows.index_select(0, send(torch.from_numpy(ids), rows.device))


class StepFunction:
    """A vertex function with what it reads, found on the features of a first step; those of others are alike."""

    def __init__(self, function: VertexFunction, feed: Feed) -> None:
        self.function = function
        self._known = known_states(function, function.given_states)  # where it runs one vertex at a time
        self._body: FrontierBody | None = None
        try:
            self._body = frontier_body(function, feed)
        except CaptureError as error:
            say_serial(function, without_frames(error))
        read = () if self._body is None else self._body.read
        self._kinds = {full: feed.spec(full) for full in read}

    def check(self, feed: Feed) -> None:
        """FeatureError, DTypeError or NameLookupError: what is read is not there, or not as in the first step."""
        for full, first in self._kinds.items():
            kind, _, name = full.partition(":")
            now = feed.spec(feed.full_name(kind, name))
            if now.row_shape != first.row_shape:
                fact = f"the {kind} feature {name!r} has rows of shape {now.row_shape}; before, {first.row_shape}"
                raise FeatureError(fact, cure="give the same features in every step")
            if now.dtype != first.dtype:
                fact = f"the {kind} feature {name!r} is {now.dtype}; before, {first.dtype}"
                raise DTypeError(fact, cure=f"pass {name}.to({first.dtype})")

    def run(self, feed: FrontierFeed) -> tuple[Rows, Rows]:
        """What the vertices of a frontier push, and what they scatter; rows in the frontier's order."""
        if self._body is not None:
            try:
                return self._run_captured(self._body, feed)
            except CaptureError as error:
                say_serial(self.function, without_frames(error))
        below = feed.states_below(self._known)
        return run_frontier(self.function, self._known, feed, below, feed.vertex_ids.tolist())

    def _run_captured(self, body: FrontierBody, feed: FrontierFeed) -> tuple[Rows, Rows]:
        feed.nothing = self._without_children(body, feed)
        device, topology = feed.topology.device, feed.topology
        forward = self.function.forward
        family = family_of((type(self.function), function_key(forward), "frontier", tuple(body.states.items())))
        bound, tensors = find_captured(family, (forward,), Features(feed.find, feed.spec, device), lambda: body)
        if _has_loops(bound.captured):
            raise CaptureError("an operator of it must see one vertex at a time")
        needs, lines = bound.captured.num_slots_needed, bound.captured.facts.gather_lines
        check_children(needs, lines, topology, None, feed.vertex_ids.tolist())
        outputs = [rows for rows in bound.run(tensors, bound.call_context(topology, "once")) if rows is not None]
        named = list(zip(bound.captured.facts.names, outputs, strict=True))
        num_pushed = len(named) - len(body.states)
        return dict(named[:num_pushed]), dict(named[num_pushed:])

    def _without_children(self, body: FrontierBody, feed: FrontierFeed) -> Rows:
        """States of no children: with gradient where those of children have it, so that one capture serves both."""
        given = (feed.step.find(full) for full in body.read)
        tensors = [*self.function.parameters(), *(rows for rows in given if rows is not None)]
        has_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        device = feed.topology.device
        made = {n: torch.zeros((0, *s.row_shape), dtype=s.dtype, device=device) for n, s in body.states.items()}
        return {name: rows.requires_grad_(has_grad and has_fractions(rows.dtype)) for name, rows in made.items()}


def _has_loops(captured: Captured) -> bool:
    pairs = captured.pairs.values()
    programs = [*captured.programs.values(), *(pair.forward for pair in pairs), *(pair.backward for pair in pairs)]
    return any(phase.is_loop for program in programs for phase in program.phases)


def rows_of(rows: list[Tensor], like: Tensor) -> Tensor:
    """Rows one below the other; ``like``: one such row, where there are none."""
    return torch.stack(rows) if rows else like.new_zeros((0, *like.shape))
