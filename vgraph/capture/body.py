"""Body: a user's function with what surrounds it, as everything that records or runs it calls it.

Takes: a Session, in which the function runs. Gives: what the function gave. Runs once per function.
Source: Cavs section 3.1 (the vertex function), DGL section 3 (the functions of edges and nodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from torch import Tensor

from vgraph.capture.session import Session
from vgraph.ir.moves import Move
from vgraph.ir.space import Space


@dataclass(eq=False)
class Given:
    """What a Body gives: the user's outputs, then states; carries are (output, input, move)."""

    outputs: list[Tensor]
    carries: list[tuple[int, Tensor, Move]]
    num_outputs: int


class Body(Protocol):
    """A user function with what surrounds it."""

    name: str
    mailbox: bool | int
    per_vertex: bool
    spaces: tuple[Space, ...]  # subsets and types of vertices

    def run(self, session: Session) -> Given:
        """Calls the user's function once on the session's examples."""
        ...

    def facts(self) -> Any:
        """What the last run showed that calls need to know, such as the outputs' names."""
        ...


class Options(TypedDict):
    """How the Programs of a body are compiled."""

    per_vertex: bool
    fuse: bool
    device: str


def compile_options(body: Body, device: str = "cpu") -> Options:
    """How the Programs of a body are compiled; where one degree is run densely, rows have two names."""
    return {"per_vertex": body.per_vertex, "fuse": isinstance(body.mailbox, bool), "device": device}
