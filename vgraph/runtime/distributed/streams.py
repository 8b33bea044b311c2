"""Streams: one thread a device and one a link, so that ops and copies of a placed Program overlap.

Takes: a PartitionedProgram of operator placement, the devices. Gives: a function of whole tensors. Runs at every
step. A CPU device is a group of torch's threads, driven by one Python thread. A CUDA device is driven the same way,
on a stream of its own. Source: depth-first placement, execution with one stream a device and copies that overlap.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from vgraph.ir.exchange import Exchange, Fetch
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.program import Noun, Op, Program, Routine, Value, takes
from vgraph.ir.schedule import Phase
from vgraph.ir.sharding import Region
from vgraph.ir.space import SHARED
from vgraph.runtime.distributed.shards import take
from vgraph.runtime.extent import Parameters, draw_random
from vgraph.runtime.python_codegen import Run, compile_phase

P = ParamSpec("P")
T = TypeVar("T")


def enter_device(torch_device: torch.device, num_threads: int) -> None:
    """What a device's thread does first. Torch takes over its default at the first question, so that comes first."""
    torch.get_num_threads()
    torch.set_num_threads(num_threads)
    if torch_device.type == "cuda":  # pragma: no cover - needs a GPU
        torch.cuda.set_device(torch_device)
        torch.cuda.set_stream(torch.cuda.Stream(torch_device))


class DeviceStream:
    """A device that runs what it is given, one thing after another, on a thread of its own."""

    def __init__(self, name: str, torch_device: torch.device, num_threads: int = 1) -> None:
        self.name, self.torch_device, self.num_threads = name, torch_device, num_threads
        before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(1, f"vgraph {name}", enter_device, (torch_device, num_threads))
        self._pool.submit(int).result()  # set_num_threads also changes what later threads begin with:
        torch.set_num_threads(before)  # that is put back
        weakref.finalize(self, self._pool.shutdown, wait=False)

    def submit(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
        """Runs ``work(*given)`` after what came before."""
        return self._pool.submit(work, *given, **named)

    def finish(self) -> None:
        """Waits until the device has done what its thread has begun."""
        if self.torch_device.type == "cuda":  # pragma: no cover - needs a GPU
            torch.cuda.current_stream(self.torch_device).synchronize()


@dataclass(eq=False)
class _Slot:
    """What one copy brings: filled by a link's thread, awaited by the reader's device; a new one every step."""

    arrived: Future[Tensor]


class _Send:
    """An op without result: hands a tensor to the links that other devices read it through."""

    def __init__(self, links: Sequence[tuple[DeviceStream, torch.device, _Slot]]) -> None:
        self.links = links

    def __call__(self, tensor: Tensor) -> None:
        made = _mark(tensor)
        for link, target, slot in self.links:
            link.submit(_copy, tensor, made, target, slot.arrived)


class _Receive:
    """An op without operands: waits for the copy."""

    def __init__(self, slot: _Slot) -> None:
        self.slot = slot

    def __call__(self) -> Tensor:
        tensor = self.slot.arrived.result()
        if tensor.is_cuda:  # pragma: no cover - the link's stream must not reuse it while this one reads
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return tensor


def link_device(source: DeviceStream, target: DeviceStream) -> torch.device:
    """The device whose copy stream a link is: the GPU, if one end is."""
    ends = (target.torch_device, source.torch_device)
    return next((end for end in ends if end.type == "cuda"), ends[0])


def one_copy(link: DeviceStream, target: torch.device) -> tuple[Callable[[Tensor], None], Callable[[], Tensor]]:
    """What sends one tensor, and what waits for it on the other side."""
    slot = _Slot(Future())
    return _Send([(link, target, slot)]), _Receive(slot)


def _mark(tensor: Tensor) -> torch.cuda.Event | None:
    """When a GPU will have made the tensor; None on a CPU, where it has."""
    if not tensor.is_cuda:
        return None
    return _mark_of(tensor.device)  # pragma: no cover - needs a GPU


def _mark_of(device: torch.device) -> torch.cuda.Event | None:
    """When a GPU will have done what its caller asked of it so far; None on a CPU, which has."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # pragma: no cover - needs a GPU
    event.record(torch.cuda.current_stream(device))  # pragma: no cover
    return event  # pragma: no cover


def _copy(tensor: Tensor, made: torch.cuda.Event | None, target: torch.device, arrived: Future[Tensor]) -> None:
    """On a link's thread. A copy between CPU devices is a copy too: their memory is thought to be apart."""
    try:
        if tensor.is_cuda or target.type == "cuda":  # pragma: no cover - needs a GPU
            copy = _copy_cuda(tensor, made, target)
        else:
            copy = tensor.clone()
        arrived.set_result(copy)
    except BaseException as error:  # whoever waits for it must not wait forever
        if not arrived.done():
            arrived.set_exception(error)


def _copy_cuda(  # pragma: no cover - needs a GPU
    tensor: Tensor, made: torch.cuda.Event | None, target: torch.device
) -> Tensor:
    """On the link's own stream: the device's stream goes on meanwhile."""
    stream = torch.cuda.current_stream(target if target.type == "cuda" else tensor.device)
    if made is not None:
        stream.wait_event(made)
    copy = tensor.to(target, non_blocking=True)
    stream.synchronize()
    if tensor.is_cuda:
        tensor.record_stream(stream)
    return copy


class _Draw:
    """Stands for the extent that generated code draws random numbers from: there are no rows."""

    def random(
        self,
        distribution: str,
        number: int,
        seed: Tensor,
        kind: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        extra: Parameters,
    ) -> Tensor:
        return draw_random(distribution, number, seed, None, shape, dtype, extra)


@dataclass(frozen=True, eq=False)
class _Part:
    """One device's code: reads inputs from ``env`` by id, leaves outputs there."""

    run: Run
    inputs: Mapping[int, int]  # position among all inputs -> value id
    outputs: Mapping[int, int]  # position among all outputs -> value id


class PlacedProgram:
    """A PartitionedProgram whose workers are devices of this machine, ready to run.

    ``devices[i]`` runs ``parts.programs[i]``. One call at a time; a second one waits.
    """

    def __init__(self, parts: PartitionedProgram, devices: Sequence[DeviceStream]) -> None:
        self.devices = tuple(devices)
        self._lock = Lock()
        self._slots: dict[tuple[int, int], _Slot] = {}
        self._links: dict[tuple[int, int], DeviceStream] = {}
        self._kept: dict[tuple[int, int], tuple[weakref.ref[Tensor], int, Tensor]] = {}
        used = [v.id for p in parts.programs for op in p.ops for v in (*op.results, *op.operands())]
        used += [given.value.id for p in parts.programs for given in p.inputs]
        self._new_id = count(1 + max(used, default=0))
        layouts = parts.output_layouts
        self._owner = [_owner(None if layout is None else layout.regions) for layout in layouts]
        self._parts = [self._compile(parts, worker) for worker in range(len(self.devices))]

    # ------------------------------------------------------------ once a placement
    def _compile(self, parts: PartitionedProgram, worker: int) -> _Part:
        program = parts.programs[worker]
        outputs = {
            i: value.id for i, value in enumerate(program.outputs) if value is not None and self._owner[i] == worker
        }
        phase = Phase(tuple(self._ops(program, worker)), is_loop=False)
        code = compile_phase(phase, outputs.values(), f"device{worker}")
        inputs = {i: given.value.id for i, given in enumerate(program.inputs) if given.value.id in set(code.reads)}
        direct = {i.value.id for i in program.inputs} & set(outputs.values())
        inputs |= {i: given.value.id for i, given in enumerate(program.inputs) if given.value.id in direct}
        return _Part(code.run, inputs, outputs)

    def _ops(self, program: Program, worker: int) -> list[Op]:
        """A fetch is a receive where it stands, and a send as soon as the value is made."""
        sends: dict[int, list[Exchange]] = {}
        for op in program.ops:
            if isinstance(op.target, Fetch):
                for value in op.operands():
                    if self._receivers(op.target.exchange, worker):
                        sends.setdefault(value.id, []).append(op.target.exchange)
        ops: list[Op] = []
        for given in program.inputs:
            if given.value.id in sends:
                ops.append(self._send(given.value, sends[given.value.id], worker))
        for op in program.ops:
            if isinstance(op.target, Fetch):
                ops += self._receive(op, op.target, worker)
            else:
                ops.append(self._on_device(op, worker))
            for value in op.results:
                if value.id in sends:
                    ops.append(self._send(value, sends[value.id], worker))
        return ops

    @staticmethod
    def _receivers(exchange: Exchange, worker: int) -> list[int]:
        return [w for w in range(len(exchange.pieces)) if w != worker and exchange.sent(worker, w)]

    def _send(self, value: Value, exchanges: Sequence[Exchange], worker: int) -> Op:
        links = [
            (self._link(worker, other), self.devices[other].torch_device, self._slot(exchange, other))
            for exchange in exchanges
            for other in self._receivers(exchange, worker)
        ]
        nothing = Value(next(self._new_id), SHARED, value.dtype, ())
        send = Routine(f"send_{exchanges[0].number}", _Send(links))
        return Op(send, (value,), {}, (nothing,))

    def _receive(self, op: Op, fetch: Fetch, worker: int) -> list[Op]:
        """Whole tensors arrive; a fetch may then be of a part."""
        if not op.results:
            return []
        (result,), pieces, exchange = op.results, fetch.exchange.pieces[worker], fetch.exchange
        assert len(pieces) == 1, "operator placement fetches a value from one device"
        held = exchange.have[pieces[0].source]
        assert held is not None
        arrive = Routine(f"receive_{exchange.number}", _Receive(self._slot(exchange, worker)))
        if pieces[0].region == held and pieces[0].source != worker:
            return [Op(arrive, (), {}, (result,))]
        part = pieces[0].region
        cut = Routine(f"take_{exchange.number}", lambda tensor: take(tensor, held, part))
        if pieces[0].source == worker:
            return [Op(cut, tuple(op.operands()), {}, (result,))]
        whole = Value(next(self._new_id), SHARED, result.dtype, tuple(len(entries) for entries in held))
        return [Op(arrive, (), {}, (whole,)), Op(cut, (whole,), {}, (result,))]

    def _slot(self, exchange: Exchange, worker: int) -> _Slot:
        return self._slots.setdefault((exchange.number, worker), _Slot(Future()))

    def _link(self, source: int, target: int) -> DeviceStream:
        if (source, target) not in self._links:
            name = f"{self.devices[source].name} to {self.devices[target].name}"
            on = link_device(self.devices[source], self.devices[target])
            self._links[source, target] = DeviceStream(name, on)
        return self._links[source, target]

    def _on_device(self, op: Op, worker: int) -> Op:
        """Ops that name a device (zeros, arange) name the one they are placed on."""
        here = self.devices[worker].torch_device

        def swap(leaf: object) -> object:
            return here if isinstance(leaf, torch.device) else leaf

        op = op.mapped(swap)
        if here.type == "cuda" and op.kwargs.get("device") is None and _makes_from_nothing(op):  # pragma: no cover
            return replace(op, kwargs={**op.kwargs, "device": here})
        return op

    # ------------------------------------------------------------ every step
    @torch.no_grad()
    def run(self, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """All outputs of the whole Program, each on the device that made it. Raises what an op raised."""
        with self._lock:
            for slot in self._slots.values():
                slot.arrived = Future()
            made_by_caller = [_mark_of(device.torch_device) for device in self.devices]
            running = [
                device.submit(self._run_part, number, inputs, made_by_caller[number])
                for number, device in enumerate(self.devices)
            ]
            wait(running)
            errors = [error for future in running if (error := future.exception()) is not None]
            if errors:
                raise next((e for e in errors if not isinstance(e, _Stopped)), errors[0])
            made = [future.result() for future in running]
            found = [None if owner is None else made[owner][i] for i, owner in enumerate(self._owner)]
            for tensor in found:
                if tensor is not None and tensor.is_cuda:  # pragma: no cover - made on a stream, read on the caller's
                    tensor.record_stream(torch.cuda.current_stream(tensor.device))
            return found

    def _run_part(
        self, number: int, inputs: Sequence[Tensor], made_by_caller: torch.cuda.Event | None
    ) -> dict[int, Tensor]:
        part, device = self._parts[number], self.devices[number]
        with torch.no_grad():
            try:
                if made_by_caller is not None:  # pragma: no cover - an optimizer's step may still be under way
                    torch.cuda.current_stream(device.torch_device).wait_event(made_by_caller)
                env = {value: self._input(number, i, inputs[i]) for i, value in part.inputs.items()}
                part.run(env, {}, [_Draw()])
                device.finish()
            except BaseException:
                self._stop_others()
                raise
        return {i: env[value] for i, value in part.outputs.items()}

    def _input(self, number: int, position: int, tensor: Tensor) -> Tensor:
        """A tensor of the caller on a device; parameters on another one are copied when they have changed."""
        device = self.devices[number].torch_device
        if tensor.device == device:
            return tensor.detach()
        kept = self._kept.get((number, position))  # pragma: no cover - needs a GPU
        if kept is None or kept[0]() is not tensor or kept[1] != tensor._version:  # pragma: no cover
            kept = (weakref.ref(tensor), tensor._version, tensor.detach().to(device))
            self._kept[number, position] = kept
        return kept[2]  # pragma: no cover

    def _stop_others(self) -> None:
        """Devices that wait for what will not come end, too."""
        for slot in self._slots.values():
            if not slot.arrived.done():
                try:
                    slot.arrived.set_exception(_Stopped("another device failed"))
                except Exception:  # filled in this moment
                    continue


class _Stopped(RuntimeError):
    """A device ends because another one failed."""


def _makes_from_nothing(op: Op) -> bool:
    """Whether an op reads no tensor and has a device among its arguments: zeros, full, arange."""
    return not isinstance(op.target, Noun) and takes(op.target, "device") and not any(op.operands())


def _owner(regions: Sequence[Region | None] | None) -> int | None:
    """The first device that has an output."""
    if regions is None:
        return None
    return next(i for i, region in enumerate(regions) if region is not None)
