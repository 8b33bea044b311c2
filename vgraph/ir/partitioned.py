"""PartitionedProgram: what every worker of a plan computes, and where the values lie between.

Takes: nothing (plain values). Gives: Layout and PartitionedProgram. Runs once per function.
Source: Tofu section 6 (the partitioned graph).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vgraph.ir.exchange import Exchange
from vgraph.ir.program import Program
from vgraph.ir.sharding import Placement, Region


@dataclass(frozen=True)
class Layout:
    """Where a value lies on the workers of a plan, as ``Worker.layout`` gives it.

    Attributes:
        placements: for every step of the division, which dim it divides.
        regions: the region of the whole tensor that each worker holds; None: it has nothing.

    Source: Wang, Huang and Li 2019 (Tofu), section 4; the words are those of DTensor.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> plan = vgraph.parallelize(Model(8, 8), (torch.ones(4, 8),), num_workers=2)
        >>> len(plan.parts.input_layouts[0].regions)
        2
    """

    placements: tuple[Placement, ...]
    regions: tuple[Region | None, ...]


@dataclass(frozen=True)
class PartitionedProgram:
    """One Program a worker; inputs and outputs in the order of the whole Program, with their layouts."""

    programs: tuple[Program, ...]
    exchanges: tuple[Exchange, ...]
    input_layouts: tuple[Layout, ...]
    output_layouts: tuple[Layout | None, ...]
    origin: Mapping[int, int] = field(default_factory=dict[int, int])  # exchange number -> op that reads
    overwrites: tuple[tuple[int, int], ...] = ()  # (input, output): an update takes the memory of what it updates

    @property
    def communicated_bytes(self) -> int:
        """Bytes that cross workers in one step: the sum over all exchanges."""
        return sum(exchange.num_bytes for exchange in self.exchanges)
