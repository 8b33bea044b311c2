"""Flow: messages and reductions that run through a DAG, each vertex after those it hears from.

Takes: message, reduce and apply functions as a user wrote them for one step. Gives: one Program with
Carries, so that all steps are one schedule. Runs once per function. Source: Cavs section 3.2; DGL's prop_nodes_topo.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vgraph.api.messages.batches import (
    Names,
    OfEdges,
    OfNodes,
    UpdateBody,
    as_raised,
)
from vgraph.api.messages.propagate import Results, by_name, log_once
from vgraph.capture.body import Given
from vgraph.capture.capture import family_of, find_captured
from vgraph.capture.capture_cache import function_key
from vgraph.capture.errors import CaptureError
from vgraph.capture.features import Features
from vgraph.capture.rows.row_tensor import as_rows, plain
from vgraph.capture.session import Session
from vgraph.ir.moves import Gather, Move
from vgraph.ir.space import VERTEX
from vgraph.ir.topology import Topology

State = tuple[tuple[int, ...], torch.dtype]
Roots = tuple[OfEdges, OfNodes, OfNodes | None]


class FlowBody(UpdateBody):
    """One step as derive.py runs it: what a vertex gives as a state, those behind it read at the source.

    Vertices without in-edges keep the features that they have.
    """

    def __init__(
        self,
        roots: Roots,
        names: Names,
        states: Mapping[str, State],
        idtype: torch.dtype,
    ) -> None:
        super().__init__(roots[0], roots[1], names, True, roots[2], idtype)
        self.states = states

    def run(self, session: Session) -> Given:
        children: dict[str, Tensor] = {}

        def at_source(name: str) -> Tensor | None:
            if name not in self.states:
                return None
            if name not in children:
                children[name] = session.child(name, *self.states[name])
            return children[name]

        with as_raised():
            given = self.reduced(session, at_source)
            if self.apply is not None:
                given.update(self._applied(self.apply, session, given))
        has_edges = session.in_degree() > 0
        outputs = [self._kept(session, has_edges, name, rows) for name, rows in given.items()]
        self.output_names = tuple(given)
        places = {name: i for i, name in enumerate(given)}
        carries: list[tuple[int, Tensor, Move]] = [
            (len(given) + i, session.leaf(f"child:{name}"), Gather("src")) for i, name in enumerate(children)
        ]
        states = [outputs[places[name]] for name in children]
        return Given([*outputs, *states], carries, len(given))

    def _kept(self, session: Session, has_edges: Tensor, name: str, rows: Tensor) -> Tensor:
        is_there = name in self.names("dst")
        old = plain(session.input(f"dst:{name}")) if is_there else torch.zeros_like(plain(rows))
        shaped = has_edges.reshape(-1, *(1,) * (plain(rows).dim() - 1))
        return plain(as_rows(torch.where(shaped, plain(rows), old), VERTEX, session))


def run_flow(
    topology: Topology,
    frame: Mapping[str, Tensor],
    edges: Mapping[str, Tensor],
    roots: Roots,
    given: Mapping[str, Tensor],
) -> Results:
    """All steps at once; raises CaptureError where the functions cannot be captured so.

    ``frame``: the features of all vertices, those without in-edges as they stay. ``given``: what one
    step gave, by name: what of it is read at the source is a state.
    """
    sides = {"src": frame, "dst": frame, "edge": edges}
    states: dict[str, State] = {n: (tuple(rows.shape[1:]), rows.dtype) for n, rows in given.items()}
    family = family_of(("flow", topology.idtype, *(function_key(root) for root in roots if root is not None)))

    used = tuple(root for root in roots if root is not None)
    names = {kind: tuple(side) for kind, side in sides.items()}.__getitem__  # a backward holds no features by it
    try:
        features = Features.of_ends(sides, topology.device, names)
        bound, tensors = find_captured(family, used, features, lambda: FlowBody(roots, names, states, topology.idtype))
    except CaptureError as error:
        log_once((function_key(roots[0]), "flow"), "runs step by step", error)
        raise
    return by_name(bound, bound(tensors, topology, "frontier"))
