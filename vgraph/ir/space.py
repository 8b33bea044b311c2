"""Spaces: what the rows of a value are.

Takes: nothing (plain values). Gives: Space. Runs once per function.
Source: SparseTIR's axes (Ye et al. 2023), in one word.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, init=False)
class Space:
    """What the rows of a value are; ``key`` tells several spaces of one kind apart.

    There is one object for each kind and key: all stages compare spaces all the time, which identity decides at once.
    """

    kind: str
    key: str = ""

    def __new__(cls, kind: str, key: str = "") -> Space:
        found = _spaces.get((kind, key))
        if found is None:
            made = object.__new__(cls)
            vars(made).update(kind=kind, key=key)
            found = _spaces.setdefault((kind, key), made)
        return found

    def __reduce__(self) -> tuple[type[Space], tuple[str, str]]:
        return Space, (self.kind, self.key)

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}" if self.key else self.kind


_spaces: dict[tuple[str, str], Space] = {}

SHARED = Space("shared")  # parameters and numbers: no rows
GRAPH = Space("graph")  # one row a graph of the batch
VERTEX = Space("vertex")  # one row a vertex where the function is evaluated
SOURCE = Space("source")  # one row a vertex at the tail of edges; never sliced by a frontier
EDGE = Space("edge")  # one row an edge, in order of destination rows
INNER = Space("inner")  # one row a vertex that has in-edges: the last rows under a policy with frontiers
SLOT = Space("slot")  # a position in a mailbox: a dim beside VERTEX, never rows of its own


OF_LEAVES = "|leaves"  # ends the name of a subset that holds the vertices without in-edges, in order


def subset(name: str) -> Space:
    """Rows given for some vertices only (``vgraph.at``), and one row of zeros for the rest."""
    return Space("subset", f"@{name}")


def part_of(space: Space, part: str) -> Space:
    """The rows of ``space`` (vertex or edge) that belong to vertices of one type; "": all."""
    return Space(space.kind, part)
