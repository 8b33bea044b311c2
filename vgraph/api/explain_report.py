"""What became of functions: their steps, what those store and cost, as plain values.

Takes: nothing. Gives: the parts of an ``Explanation``. Runs once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stored:
    """A tensor that is written to memory, in an ``Explanation``.

    Attributes:
        what: "output", "gradient", "saved for the backward" or "temporary".
        space: what its rows are: sources, vertices, edges, graphs, or no rows.
        rows: how many rows; None: a tensor without rows.
        row_shape: the shape of a row.
        dtype: the dtype's name.
        num_bytes: the bytes of all rows.
        line: ``file:line`` of the user's program; "": none.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> [(stored.rows, stored.row_shape) for stored in function.programs[0].stored if stored.what == "output"]
        [(3, (4,))]
    """

    what: str  # output, gradient, saved for the backward, or temporary
    space: str
    rows: int | None  # None: a tensor without rows
    row_shape: tuple[int, ...]
    dtype: str
    num_bytes: int
    line: str = ""


@dataclass(frozen=True)
class Hoisted:
    """An operator that the function runs on edges, and what runs instead, in an ``Explanation``.

    Attributes:
        operator: the operator on edges.
        instead: the operators on vertices that take its place.
        line: ``file:line`` of the user's program; "": none.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> from vgraph.api.explain_report import Hoisted
        >>> Hoisted("mm over edges", ("mm over sources",)).instead
        ('mm over sources',)
    """

    operator: str
    instead: tuple[str, ...]
    line: str = ""


@dataclass(frozen=True)
class Step:
    """One kernel, or one operator of the library, in an ``Explanation``.

    Attributes:
        kernel: the number of the kernel; None: an operator of the library.
        over: what its rows are.
        operators: the operators that it runs.
        lines: ``file:line`` of the user's program for them.
        num_operations: floating-point operations in one call.
        bytes_read: bytes that it reads.
        bytes_written: bytes that it writes.
        stored: the tensors that it writes.
        why: what keeps an operator out of a kernel; "": nothing does.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> len(function.programs[0].steps) > 0
        True
    """

    kernel: int | None
    over: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    num_operations: int
    bytes_read: int
    bytes_written: int
    stored: tuple[Stored, ...]
    why: str = ""


@dataclass(frozen=True)
class PhaseSteps:
    """Steps that run once over all rows, or frontier by frontier, in an ``Explanation``.

    Attributes:
        how: which of the two, in words.
        steps: the steps, in order.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> from vgraph.api.explain_report import PhaseSteps
        >>> PhaseSteps("once over all rows", ()).how
        'once over all rows'
    """

    how: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class ProgramSteps:
    """A forward or a backward: its phases, its cost in one step, and what it never stores, in an ``Explanation``.

    Attributes:
        name: "forward" or "backward".
        phases: the phases, in order.
        num_on_edges: how many values on edges no memory holds.
        bytes_on_edges: the bytes that they would take.
        source: the C++ of its kernels, and the code around them.
        arena_bytes: the bytes of what frontiers leave.
        idle: loops that this graph has no vertices for, in words; their steps are not among ``phases``.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> function.programs[0].name, function.programs[0].num_bytes > 0
        ('forward', True)
    """

    name: str
    phases: tuple[PhaseSteps, ...]
    num_on_edges: int = 0  # values on edges that no memory holds
    bytes_on_edges: int = 0
    source: str = ""  # C++ of its kernels, and the code around them
    arena_bytes: int = 0
    idle: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all phases, in order."""
        return tuple(step for phase in self.phases for step in phase.steps)

    @property
    def stored(self) -> tuple[Stored, ...]:
        """All that is written to memory."""
        return tuple(stored for step in self.steps for stored in step.stored)

    @property
    def num_operations(self) -> int:
        """The floating-point operations of one call."""
        return sum(step.num_operations for step in self.steps)

    @property
    def num_bytes(self) -> int:
        """Bytes read and written, each kernel's and operator's own."""
        return sum(step.bytes_read + step.bytes_written for step in self.steps)


@dataclass(frozen=True)
class FunctionSteps:
    """One function as it runs, in an ``Explanation``.

    Attributes:
        name: the function's name.
        num_calls: how many calls ran alike.
        reason: how it runs and why, if it was not captured; else "".
        line: ``file:line`` of what was not captured; else "".
        hoisted: operators that moved from edges to vertices.
        programs: its forward, and its backward where there is one.
        details: Programs, schedule and memory plan as text.
        policy: the policy of a loop over frontiers; "": there is none.
        batches: how many batches each policy makes of this graph.
        least_batches: how many any policy must make.
        frontiers: how many vertices each batch of a loop has, in order; empty: there is no loop.
        unwatchable: what it reads that no guard can watch, so that its Python runs at every call; else "".

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> function.num_calls, function.reason
        (1, '')
    """

    name: str
    num_calls: int = 1
    reason: str = ""
    line: str = ""
    hoisted: tuple[Hoisted, ...] = ()
    programs: tuple[ProgramSteps, ...] = ()
    details: str = ""  # Programs, schedule and memory plan
    policy: str = ""  # of a loop over frontiers
    batches: Mapping[str, int] = field(default_factory=dict[str, int])  # that each policy makes of this graph
    least_batches: int = 0  # that any policy could make
    frontiers: tuple[int, ...] = ()
    unwatchable: str = ""
