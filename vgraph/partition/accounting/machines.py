"""Machines: what a worker computes, holds and sends, for the simulator.

Takes: a name. Gives: a Machine. Runs once.
Source: Tofu section 7.1 (eight K80 on one PCIe root), public data sheets of V100, A100 and their links.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.errors import NameLookupError


@dataclass(frozen=True)
class Link:
    """What joins groups of workers, as of a ``Machine``.

    Attributes:
        size: how many workers the groups have that it joins.
        bandwidth: bytes a second that each worker gets.
        latency: seconds a transfer.

    Source: data sheets of the links (PCIe, NVLink, 100 Gb/s Ethernet).

    Example:
        >>> from vgraph.partition.accounting.machines import MACHINES
        >>> MACHINES["hosts"].link(16).size, MACHINES["hosts"].link(8).size
        (8, 1)
    """

    size: int
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machine:
    """A kind of worker and its links, for ``vgraph.parallelize(machine=...)`` and ``Plan.simulate``.

    Attributes:
        name: what reports call it.
        flops: floating-point operations a second of a product, as measured on such devices rather than promised.
        memory_bandwidth: bytes a second of a worker's own memory.
        memory: bytes that a worker may hold.
        links: what joins workers, the widest reaching first.
        host_bandwidth: bytes a second of the link to the host's memory, shared by all workers of a host.
        launch: seconds that any op takes.
        fused: which part of its bytes and launches a pointwise op costs, where compilers and libraries fuse chains of
            them (1: none does).

    Source: Wang, Huang and Li 2019 (Tofu), section 7.1.

    Example:
        >>> from vgraph.partition.accounting.machines import Link, Machine
        >>> pair = Machine("two GPUs", 10e12, 800e9, 16 * 2.0**30, (Link(1, 20e9, 1e-5),))
        >>> pair.link(2).bandwidth
        20000000000.0
    """

    name: str
    flops: float
    memory_bandwidth: float
    memory: float
    links: tuple[Link, ...]
    host_bandwidth: float = 10e9
    launch: float = 5e-6
    fused: float = 0.35

    def link(self, group: int) -> Link:
        """The link that a step uses which divides a group of workers.

        Args:
            group: how many workers the group has.

        Returns:
            The first link that reaches beyond groups of its size, else the last one.
        """
        for link in self.links:
            if group > link.size:
                return link
        return self.links[-1]


GIB = 2.0**30
MACHINES: dict[str, Machine] = {
    "paper": Machine("8 x K80, PCIe (the paper's)", 2.8e12, 190e9, 12 * GIB, (Link(1, 21e9, 20e-6),)),
    "nvlink": Machine("8 x V100-32GB, NVLink", 13e12, 780e9, 32 * GIB, (Link(1, 120e9, 10e-6),)),
    "hosts": Machine(
        "hosts of 8 x V100-32GB, 100 Gb/s between",
        13e12,
        780e9,
        32 * GIB,
        (Link(8, 1.5e9, 30e-6), Link(1, 120e9, 10e-6)),
    ),
}


def machine(preset: str | Machine) -> Machine:
    """A preset by name.

    Raises:
        NameLookupError: there is no such preset.
    """
    if isinstance(preset, Machine):
        return preset
    if not isinstance(preset, str) or preset not in MACHINES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NameLookupError(f"no machine is called {preset!r}", cure=f"use one of {', '.join(MACHINES)}")
    return MACHINES[preset]
