"""Devices: what an op can be placed on, and the links between them.

Takes: kinds, memory, latencies, bandwidths. Gives: a Cluster. Runs once per placement.
Source: depth-first placement, bandwidths that depend on source and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vgraph.errors import GraphError
from vgraph.partition.placement.op_graph import Floats, Ints


@dataclass(frozen=True)
class Device:
    """One place for ops: ``kind`` chooses their seconds, ``memory`` is in bytes."""

    name: str
    kind: str
    memory: float = float("inf")


@dataclass(frozen=True, eq=False)
class Cluster:
    """Devices and what a transfer from one (row) to another (column) takes.

    ``latency`` in seconds, ``bandwidth`` in bytes a second. Transfers of one ``link`` wait for one another.
    """

    devices: tuple[Device, ...]
    latency: Floats
    bandwidth: Floats
    link: Ints

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def memory(self) -> Floats:
        """Bytes of each device."""
        return np.array([device.memory for device in self.devices])

    def mean_link(self) -> tuple[float, float]:
        """Mean latency and mean seconds a byte between two devices; zeros for one device."""
        between = ~np.eye(self.num_devices, dtype=np.bool_)
        if not between.any():
            return 0.0, 0.0
        return float(self.latency[between].mean()), float((1.0 / self.bandwidth[between]).mean())


def connect(devices: Sequence[Device], latency: Floats, bandwidth: Floats, link: Ints | None = None) -> Cluster:
    """A Cluster; without ``link`` every ordered pair of devices has a link of its own.

    Raises:
        GraphError: no device, or two devices that nothing connects.
    """
    count = len(devices)
    if not count:
        raise GraphError("there is no device to place operators on", cure="name at least one, as in devices=['cpu']")
    link = np.arange(count * count, dtype=np.int64).reshape(count, count) if link is None else link
    for a in range(count):
        for b in range(count):
            if a != b and not bandwidth[a, b] > 0:
                raise GraphError(
                    f"{devices[b].name} cannot be reached from {devices[a].name}: {bandwidth[a, b]} bytes a second",
                    cure="measure or give a bandwidth above 0 for every ordered pair of devices",
                )
    return Cluster(tuple(devices), latency, bandwidth, link)


def uniform_cluster(
    count: int, kind: str = "device", *, memory: float = float("inf"), latency: float = 1e-5, bandwidth: float = 1e10
) -> Cluster:
    """``count`` equal devices; every ordered pair has a link of its own.

    >>> uniform_cluster(2).num_devices
    2
    """
    devices = [Device(f"{kind}:{i}", kind, memory) for i in range(count)]
    shape = (count, count)
    return connect(devices, np.full(shape, latency), np.full(shape, bandwidth))


_NVLINKS = np.array([[1, 1, 1, 2], [1, 1, 2, 1], [1, 2, 1, 2], [2, 1, 2, 1]])  # the first four GPUs of a DGX-1
GIB = 1024.0**3


def v100_nvlink() -> Cluster:
    """Four V100-32GB, one or two NVLinks of 22 GB/s (of 25 nominal) between each two, in each direction."""
    devices = [Device(f"V100:{i}", "V100-32GB", 31 * GIB) for i in range(4)]
    return connect(devices, np.full((4, 4), 1e-5), 22e9 * _NVLINKS)


def v100_pcie() -> Cluster:
    """Four V100-32GB on PCIe 3.0 x16, two to a switch: 10 GB/s; 9 GB/s through the host, shared by direction."""
    devices = [Device(f"V100:{i}", "V100-32GB", 31 * GIB) for i in range(4)]
    switch = np.array([0, 0, 1, 1])
    near = switch[:, None] == switch[None, :]
    own = np.arange(16, dtype=np.int64).reshape(4, 4)
    host = 16 + np.broadcast_to(switch[:, None], (4, 4))  # both devices of a switch share its way up
    latency = np.where(near, 1e-5, 2e-5)
    return connect(devices, latency, np.where(near, 10e9, 9e9), np.where(near, own, host))


PRESETS = {"v100-nvlink": v100_nvlink, "v100-pcie": v100_pcie}
