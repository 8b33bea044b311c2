"""Place: a model whose operators live on several, also unequal, devices.

Takes: a model, example inputs, devices. Gives: a Placement: simulated, drawn, run. Runs once per model.
Source: depth-first placement: profile, place, execute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from vgraph.api.dense.devices import PlaceDevice, measured_cluster, parse_devices
from vgraph.api.dense.run import Captured, Runner, capture_model
from vgraph.arguments import COUNT, PATH, POSITIVE, Bound, checked
from vgraph.atomic_file import write_text
from vgraph.capture.step.arguments import as_arguments
from vgraph.errors import FunctionError, PlacementError
from vgraph.ir.program import Program, Value
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.dot import format_dot, read_dot
from vgraph.partition.placement.draw import save_figure
from vgraph.partition.placement.list_schedule import Timeline
from vgraph.partition.placement.placement import PlacedGraph, place_graph
from vgraph.partition.placement.profile import Profile
from vgraph.partition.placement.program_graph import ProgramGraph, build_program_graph, placement_plan
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.runtime.distributed.measure import measure_ops

logger = logging.getLogger("vgraph")
_MODEL = Bound(
    "a module, or the name of a file", lambda given: isinstance(given, nn.Module) or PATH.accepts(given), FunctionError
)
_PROFILE = Bound("a Profile, or the name of a file", lambda given: isinstance(given, Profile) or PATH.accepts(given))
_BYTES = COUNT.each()
_MEMORY = Bound(
    "a number of bytes, or one a device",
    lambda given: COUNT.accepts(given) or _BYTES.accepts(given),
    number=lambda given: COUNT.number(given) if COUNT.number and COUNT.accepts(given) else given,
)


class Placement:
    """Where every operator of a model runs, and when, by simulation; made by ``vgraph.place``.

    ``device_of`` maps every operator and parameter to the number of its device in ``devices``. ``makespan`` is
    seconds of one step, simulated; ``one_device`` those on the best single device. ``peak_memory``: bytes, one
    number a device. ``profile``: the seconds that all this rests on, for another call of ``vgraph.place``.

    Raises:
        PlacementError: it is run with inputs of other shapes, or on devices that are only simulated.

    Source: depth-first placement (profile, place, execute).

    Example:
        >>> import torch, vgraph
        >>> placement = vgraph.place(torch.nn.Linear(4, 2), torch.ones(3, 4), ["cpu"])
        >>> placement.device_of["parameter:weight"], placement.makespan == placement.one_device
        (0, True)
    """

    def __init__(
        self,
        placed: PlacedGraph,
        profile: Profile,
        devices: Sequence[PlaceDevice],
        captured: Captured | None = None,
        built: ProgramGraph | None = None,
    ) -> None:
        self.devices: tuple[str, ...] = tuple(device.text for device in devices)
        self.profile = profile
        self.graph, self.cluster, self.timeline = placed.graph, placed.cluster, placed.timeline
        self.starts: Mapping[str, tuple[float, float]] = placed.starts
        self.device_of: dict[str, int] = dict(zip(placed.graph.names, placed.device_of.tolist(), strict=True))
        self.peak_memory: tuple[int, ...] = tuple(int(b) for b in placed.timeline.peak_memory)
        self._captured, self._built, self._places = captured, built, devices
        self._runner: Runner | None = None

    @property
    def makespan(self) -> float:
        """Simulated seconds of one step."""
        return self.timeline.makespan

    @property
    def one_device(self) -> float:
        """Simulated seconds of one step on the one device that is fastest alone."""
        return self.starts["one device"][1]

    def run(self, *inputs: object) -> Any:
        """What the model returns, computed on the devices.

        A loss carries the gradients, which the same step has computed: ``loss.backward()`` hands them to the
        parameters, which any optimizer then steps.

        Args:
            *inputs: the model's arguments, of the shapes of the example's.

        Returns:
            What the model returns.

        Raises:
            PlacementError: inputs of other shapes than the example's, or devices that are only simulated.
        """
        if self._runner is None:
            self._runner = self._prepare()
        return self._runner(inputs)

    def _prepare(self) -> Runner:
        captured, built = self._captured, self._built
        if captured is None or built is None:
            raise PlacementError("this placement cannot run: it is of a graph, not of a model", cure="place the model")
        simulated = [device.text for device in self._places if device.torch_device is None]
        if simulated or captured.is_meta:
            what = f"{simulated[0]} is simulated" if simulated else "the model is on the meta device"
            cure = "place a real model on devices of this machine"
            raise PlacementError(f"this placement cannot run: {what}", cure=cure)
        order = self.timeline.order()
        ordered, plan = placement_plan(built, self.timeline.device_of, order, len(self.devices))
        return Runner(captured, rewrite(ordered, plan), self._places)

    @checked(path=PATH)
    def save_plot(self, path: str | Path) -> None:
        """Draws the graph in the colours of the devices, and below it who does what when.

        Args:
            path: where to; its end says the format: ``.svg``, ``.png`` or ``.pdf``.

        Raises:
            PlacementError: matplotlib is not installed.
        """
        save_figure(self.graph, self.cluster, self.timeline, Path(path))

    @checked(path=PATH)
    def save_dot(self, path: str | Path) -> None:
        """Writes the graph, its costs and the placement for Graphviz.

        Args:
            path: where to; ``vgraph.place`` reads such files.
        """
        write_text(path, format_dot(self.graph, self.timeline.device_of))

    def __str__(self) -> str:
        first = f"{self.graph.num_ops} operators on {len(self.devices)} devices: {self.makespan * 1e3:.3f} ms a step, "
        lines = [first + f"{self.one_device * 1e3:.3f} ms on one"]
        busy = busy_seconds(self.timeline, self.cluster)
        for number, device in enumerate(self.cluster.devices):
            count = int((self.timeline.device_of == number).sum())
            share = busy[number] / self.makespan if self.makespan else 0.0
            memory = self.peak_memory[number] / 2**20
            lines.append(f"  {device.name}: {count} operators, busy {share:.0%}, {memory:.1f} MiB at most")
        return "\n".join(lines)


def busy_seconds(timeline: Timeline, cluster: Cluster) -> list[float]:
    """Seconds of ops on each device."""
    length = (timeline.finish - timeline.start)[: timeline.num_ops]
    return np.bincount(timeline.device_of, length, cluster.num_devices).tolist()


@checked(model=_MODEL, profile=_PROFILE.or_none(), memory=_MEMORY.or_none(), trials=COUNT.or_none(), repeats=POSITIVE)
def place(
    model: nn.Module | str | Path,
    example_inputs: object = None,
    devices: Sequence[str] | str = ("cpu",),
    profile: Profile | str | Path | None = None,
    *,
    memory: int | Sequence[int] | None = None,
    trials: int | None = None,
    repeats: int = 5,
) -> Placement:
    """Measures the operators of a model, places them on devices, and gives what runs them there.

    A model that returns a scalar loss is placed with its backward, any other one as it is.

    Args:
        model: any module that can be captured; read at every run, never modified but for its buffers. Or the name of
            a Graphviz file of operators with their costs, as ``save_dot`` writes it; then nothing is run.
        example_inputs: its arguments; other inputs must have the same shapes. None for a file.
        devices: ``"cpu"`` (one thread), ``"cpu*4"`` (four), ``"cuda:0"``; or the name of a simulated machine,
            ``"v100-nvlink"`` or ``"v100-pcie"`` (four V100-32GB by estimated costs).
        profile: one of an earlier placement of this model, or a file: read if it is there, else written. None:
            operators are measured.
        memory: bytes that a device may hold, one number for all or one a device; None: what the device has.
        trials: how many schedules the local search may try; None: what takes a few seconds.
        repeats: steps to measure, after one to warm up.

    Returns:
        A Placement, which runs the model on the devices.

    Raises:
        ArgumentError: ``trials`` is no whole number from 0 up, or ``repeats`` from 1 up.
        PlacementError: a device that is not there, or a profile of another model.
        DeviceMemoryError: no placement was found that fits into the devices; says how many bytes are missing.
        ModelError: the model cannot be captured; the message has its own line.

    Source: depth-first placement (profile, place, execute).

    Example:
        >>> import torch, vgraph
        >>> model = torch.nn.Linear(4, 2)
        >>> placement = vgraph.place(model, torch.ones(3, 4), ["cpu", "cpu"])
        >>> torch.allclose(placement.run(torch.ones(3, 4)), model(torch.ones(3, 4)))
        True
    """
    places = parse_devices(devices, memory)
    if not isinstance(model, nn.Module):
        return _place_file(model, places, profile, trials)
    captured = capture_model(model, as_arguments(example_inputs))
    with tqdm(desc="vgraph: profile", disable=None, leave=False, unit="op") as bar:
        known = _profile(captured, places, profile, repeats, bar)
        bar.set_description("vgraph: place")
        built = _graph_of(captured, places, known)
        placed = place_graph(built.graph, measured_cluster(places, known), trials=trials, tick=bar.update)
    return Placement(placed, known, places, captured, built)


def _place_file(
    path: str | Path, places: Sequence[PlaceDevice], given: Profile | str | Path | None, trials: int | None
) -> Placement:
    """Places a graph of a file; the profile is asked for the links alone."""
    profile = Profile.load(given) if isinstance(given, (str, Path)) else given or Profile()
    with tqdm(desc="vgraph: place", disable=None, leave=False, unit="trial") as bar:
        placed = place_graph(read_dot(path), measured_cluster(places, profile), trials=trials, tick=bar.update)
    return Placement(placed, profile, places)


def _graph_of(captured: Captured, places: Sequence[PlaceDevice], profile: Profile) -> ProgramGraph:
    kinds = list(dict.fromkeys(place.kind for place in places))
    program: Program = captured.program
    seconds = [[profile.cost(op, kind) for kind in kinds] for op in program.ops]
    together: list[tuple[Value, Value]] = captured.together
    return build_program_graph(program, kinds, seconds, modules=captured.modules, together=together)


# ------------------------------------------------------------------ profiles
def _profile(
    captured: Captured, places: Sequence[PlaceDevice], given: Profile | str | Path | None, repeats: int, bar: Any
) -> Profile:
    """The profile that was given, checked; or one that is made, and written where a file was named."""
    kinds = {place.kind: place for place in places}
    if isinstance(given, (str, Path)) and Path(given).exists():
        given = Profile.load(given)
    if isinstance(given, Profile):
        given.check(captured.program.ops, list(kinds))
        return given
    made = Profile()
    runs = [place for place in kinds.values() if place.torch_device is not None and not captured.is_meta]
    bar.reset(total=len(runs) * (repeats + 1) * len(captured.program.ops))
    for kind, device in kinds.items():
        _profile_kind(made, captured, kind, device, repeats, bar.update)
    if given is not None:
        measured_cluster(places, made)  # a file has the links, too, so that what is placed by it is placed alike
        made.save(given)
    return made


def _profile_kind(
    profile: Profile, captured: Captured, kind: str, place: PlaceDevice, repeats: int, tick: Callable[[], object]
) -> None:
    ops, measured = captured.program.ops, dict[int, float]()
    if place.torch_device is not None and not captured.is_meta:
        with place.open() as stream:
            state = torch.get_rng_state()
            measured = measure_ops(
                captured.program, captured.tensors(captured.example), stream, repeats=repeats, tick=tick
            )
            torch.set_rng_state(state)
    profile.add(kind, ops, measured)
    missing = profile.missing(ops, kind)
    profile.estimate(kind, ops, missing)
    if missing:
        logger.info("%d of %d operators cannot be run on %s: their seconds are estimates", len(missing), len(ops), kind)
    profile.notes[kind] = f"{len(ops) - len(missing)} operators measured, {len(missing)} estimated"
