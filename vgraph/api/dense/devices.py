"""Devices that a user names: threads of this machine, GPUs, or those of a simulated machine.

Takes: "cpu", "cpu*4", "cuda:0" or a preset's name. Gives: PlaceDevices, and the Cluster that they form. Runs once per
placement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import PRESETS, Cluster, Device, connect
from vgraph.partition.placement.profile import Profile
from vgraph.runtime.distributed.measure import measure_link
from vgraph.runtime.distributed.streams import DeviceStream

_CPU = re.compile(r"cpu(\*([1-9]\d*))?")
_CUDA = re.compile(r"cuda(:(\d+))?")


@dataclass(frozen=True)
class PlaceDevice:
    """One device. ``torch_device`` is None where it is only simulated; then ``cluster`` says how it is linked."""

    text: str
    name: str
    kind: str
    memory: float
    torch_device: torch.device | None = None
    num_threads: int = 1
    cluster: Cluster | None = None

    @contextmanager
    def open(self) -> Generator[DeviceStream]:
        """A thread for this device alone, for as long as it is needed."""
        assert self.torch_device is not None
        yield DeviceStream(self.name, self.torch_device, self.num_threads)


def parse_devices(devices: Sequence[str] | str, memory: int | Sequence[int] | None) -> list[PlaceDevice]:
    """The devices of a list, or those of a simulated machine.

    Raises:
        PlacementError: a device that is not there, or limits that do not fit.
    """
    devices = _names_of(devices)
    if len(devices) == 1 and devices[0] in PRESETS:
        cluster = PRESETS[devices[0]]()
        limits = _limits(memory, [device.memory for device in cluster.devices])
        return [
            PlaceDevice(d.name, d.name, d.kind, limit, cluster=cluster)
            for d, limit in zip(cluster.devices, limits, strict=True)
        ]
    if not devices:
        raise PlacementError(
            "there is no device to place operators on", cure="name at least one, as in devices=['cpu']"
        )
    found = [_parse(text) for text in devices]
    limits = _limits(memory, [_memory_of(device) for device, _ in found])
    times, seen = Counter(devices), Counter[str]()
    places: list[PlaceDevice] = []
    for text, (device, threads), limit in zip(devices, found, limits, strict=True):
        name = f"{text} #{seen[text]}" if times[text] > 1 else text
        seen[text] += 1
        places.append(PlaceDevice(text, name, _kind_of(device, threads), limit, device, threads))
    return places


def _names_of(devices: object) -> list[str]:
    names = [devices] if isinstance(devices, str) else devices
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in cast("Sequence[object]", names)):
        raise PlacementError(f"the devices are {devices!r}", cure="name them, as in devices=['cpu', 'cuda:0']")
    return list(cast("Sequence[str]", names))


def _parse(text: str) -> tuple[torch.device, int]:
    if match := _CPU.fullmatch(text):
        return torch.device("cpu"), int(match[2] or 1)
    match = _CUDA.fullmatch(text)
    if not match:
        raise PlacementError(
            f"there is no device {text!r}",
            cure=f"name cpu, cpu*4 (four threads), cuda:0, or one of {', '.join(PRESETS)} alone",
        )
    count, index = torch.cuda.device_count(), int(match[2] or 0)
    if index >= count:
        there = f"cuda:0 to cuda:{count - 1} are" if count else "no GPU is"
        raise PlacementError(
            f"there is no device {text!r}: {there} visible to torch", cure="name devices of this machine"
        )
    return torch.device("cuda", index), 1


def _kind_of(device: torch.device, threads: int) -> str:
    if device.type == "cpu":
        return "cpu" if threads == 1 else f"cpu*{threads}"
    return f"cuda:{torch.cuda.get_device_name(device).replace(' ', '-')}"  # pragma: no cover - needs a GPU


def _memory_of(device: torch.device) -> float:
    return float("inf") if device.type == "cpu" else float(torch.cuda.mem_get_info(device)[1])


def _limits(memory: int | Sequence[int] | None, own: Sequence[float]) -> list[float]:
    if memory is None:
        return list(own)
    given = [memory] * len(own) if isinstance(memory, (int, float)) else list(memory)
    if len(given) != len(own) or min(given) <= 0:
        raise PlacementError(
            f"memory={memory!r} does not fit {len(own)} devices", cure="give bytes above 0, one number or one a device"
        )
    return [min(float(a), b) for a, b in zip(given, own, strict=True)]


def measured_cluster(places: Sequence[PlaceDevice], profile: Profile) -> Cluster:
    """The Cluster of the devices; links that the profile lacks are measured and added to it."""
    preset = places[0].cluster
    devices = [Device(place.name, place.kind, place.memory) for place in places]
    if preset is not None:
        return connect(devices, preset.latency, preset.bandwidth, preset.link)
    count = len(places)
    latency, bandwidth = np.zeros((count, count)), np.ones((count, count))
    for i, source in enumerate(places):
        for j, target in enumerate(places):
            if i != j:
                latency[i, j], bandwidth[i, j] = _link(source, target, profile)
    return connect(devices, latency, bandwidth)


def _link(source: PlaceDevice, target: PlaceDevice, profile: Profile) -> tuple[float, float]:
    pair = f"{source.kind} -> {target.kind}"
    if pair not in profile.links:
        with source.open() as one, target.open() as other:
            profile.links[pair] = measure_link(one, other)
    return profile.links[pair]
