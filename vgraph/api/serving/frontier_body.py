"""One frontier of a vertex function: what the children scattered is given, not carried.

Takes: a vertex function and a graph's features. Gives: a body to record. Runs once per function.
Source: Cavs section 3.2 (a batch is a set of vertices that are ready, of whatever graphs).
"""

from __future__ import annotations

from collections.abc import Mapping

from vgraph.api.vertex.call_features import Feed
from vgraph.api.vertex.function import VertexFunction
from vgraph.api.vertex.infer_states import infer_states
from vgraph.api.vertex.vertex import StateSpec, Vertex, VertexBody, VertexFacts
from vgraph.capture.body import Given
from vgraph.capture.record.modes import ambient, current_modes
from vgraph.capture.recording_lock import recording
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.ir.moves import Gather
from vgraph.ir.space import EDGE


class FrontierBody(VertexBody):
    """A vertex function on one frontier; ``below:h`` are children's states, a row a source or a row an edge."""

    read: tuple[str, ...] = ()  # features, by full name

    def run(self, session: Session) -> Given:
        vertex = self.evaluate(session, _FrontierVertex(session, self.states, self.find))
        self._facts = VertexFacts((*vertex.pushed, *vertex.scattered), vertex.gather_lines)
        outputs = [plain(t) for t in (*vertex.pushed.values(), *vertex.scattered.values())]
        return Given(outputs, [], len(outputs))


class _FrontierVertex(Vertex):
    def child_state(self, name: str) -> RowTensor:
        if name not in self.gathered:
            super().child_state(name) if name not in self.states else None
            below = self.session.input(f"below:{name}")
            if below.vg_space != EDGE:  # of a pool, in which children lie apart
                below = as_rows(move_rows(self.session, Gather("src"), plain(below)), EDGE, self.session)
            self.gathered[name] = below
        return self.gathered[name]


def frontier_body(function: VertexFunction, feed: Feed) -> FrontierBody:
    """The function on features like these, what it reads and the shapes of its states.

    Raises:
        CaptureError: it can only be run one vertex at a time.
    """
    read: dict[str, None] = {}

    def find(kind: str, name: str) -> str:
        read[feed.full_name(kind, name)] = None
        return f"{kind}:{name}"

    def body_of(states: Mapping[str, StateSpec]) -> VertexBody:
        return VertexBody(function, states, find, ())

    device = feed.topology.device
    with recording, ambient(False, *current_modes(device)[1:]):
        states = infer_states(function, body_of, feed.spec, (), function.given_states, device)
    body = FrontierBody(function, states, lambda kind, name: f"{kind}:{name}", ())
    body.read = tuple(read)
    return body
