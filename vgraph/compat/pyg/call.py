"""One call of propagate or edge_updater, as rows of nodes and edges.

Takes: tensors by kind, and what each argument is. Gives: what stands for the arguments while functions are recorded.
Made at every call. Source: PyG, ``MessagePassing._collect``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor

from vgraph.api.messages.indexed import Joined
from vgraph.compat.pyg.layer_types import Given
from vgraph.ir.topology import Topology

What = tuple[object, ...]  # what an argument is: a kind, and what tells it from others of that kind


@dataclass(eq=False)
class Call:
    """One call of propagate or edge_updater."""

    topology: Topology
    rows: dict[str, dict[str, Tensor]] = field(default_factory=lambda: {"src": {}, "dst": {}, "edge": {}})
    shared: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # tensors of neither nodes nor edges
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    whats: dict[str, What] = field(default_factory=dict[str, What])
    names: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # by function
    before: dict[str, Call] = field(default_factory=dict[str, "Call"])  # of arguments that are computed with it

    def with_before(self) -> list[Call]:
        """This call, and those of what is computed with it."""
        return [self, *self.before.values()]

    def without_rows(self) -> Call:
        """What recording takes: autograd's nodes hold that for a backward, but not rows that none of these reads."""
        before = {name: call.without_rows() for name, call in self.before.items()}
        return Call(self.topology, {}, {}, {}, self.whats, self.names, before)

    def all_shared(self) -> dict[str, Tensor | float]:
        """Numbers, and tensors of neither nodes nor edges, of all these calls."""
        return {name: one for call in self.with_before() for name, one in (*call.shared.items(), *call.numbers.items())}

    def all_rows(self) -> dict[str, dict[str, Tensor]]:
        """Tensors by where their rows lie, of all these calls."""
        if not self.before:
            return self.rows
        return {kind: {k: v for call in self.with_before() for k, v in call.rows[kind].items()} for kind in self.rows}

    def tensors(self) -> list[Tensor]:
        """All that it was given."""
        return [*(rows for of_kind in self.rows.values() for rows in of_kind.values()), *self.shared.values()]

    def arguments(self, function: str, joined: Joined, shared: Given, made: Given) -> dict[str, object]:
        """What stands for each argument of one function while it is recorded; others have their defaults.

        ``shared``: what is of neither nodes nor edges; ``made``: what the calls before gave.
        """
        asked = self.names[function]
        return {name: _stand_in(self.whats[name], joined, shared, made) for name in asked if name in self.whats}


def _stand_in(what: What, joined: Joined, shared: Given, made: Given) -> object:
    kind, *rest = what
    if kind == "several":
        make, parts = cast("tuple[Callable[..., object], tuple[What, ...]]", rest)
        return make(_stand_in(inner, joined, shared, made) for inner in parts)
    makers: dict[object, Callable[..., object]] = {
        "constant": lambda _, value: value,
        "shared": shared.__getitem__,
        "at": joined.at_edges,
        "ids": joined.ids,
        "both ids": joined.both_ids,
        "count": joined.count,
        "rows": joined.rows,
        "before": lambda name, _: made[name],
    }
    return makers[kind](*rest)
