"""Streams: threads of a device, copies between two, errors that end all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from vgraph.ir.program import Input, Op, Program, Routine, Value
from vgraph.ir.space import SHARED
from vgraph.partition.placement.program_graph import build_program_graph, placement_plan
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.runtime.distributed.measure import measure_link, measure_ops
from vgraph.runtime.distributed.streams import DeviceStream, PlacedProgram, _makes_from_nothing

CPU = torch.device("cpu")


def ladder(function: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    """x -> a, b (each made by ``function``) -> their sum."""
    work = Routine("work", function)
    x, a, b, total = (Value(i, SHARED, torch.float32, (4,)) for i in range(4))
    ops = (Op(work, (x,), {}, (a,)), Op(work, (x,), {}, (b,)), Op(torch.ops.aten.add.Tensor, (a, b), {}, (total,)))
    return Program("ladder", (Input(x, "x"),), ops, (total, a))


def place(program: Program, device_of: list[int], count: int = 2) -> PlacedProgram:
    built = build_program_graph(program, ["cpu"], [[1.0]] * len(program.ops))
    ordered, plan = placement_plan(built, np.array(device_of), range(len(device_of)), count)
    return PlacedProgram(rewrite(ordered, plan), [DeviceStream(f"cpu #{i}", CPU) for i in range(count)])


def test_ops_run_on_the_threads_of_their_devices() -> None:
    seen: list[str] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        seen.append(threading.current_thread().name)
        return 2 * x

    placed = place(ladder(work), [0, 0, 1, 0])
    for _ in range(3):
        total, a = placed.run([torch.ones(4)])
        assert total is not None and a is not None
        assert total.tolist() == [4.0] * 4 and a.tolist() == [2.0] * 4
    assert {name.rsplit("_", 1)[0] for name in seen} == {"vgraph cpu #0", "vgraph cpu #1"}


def test_devices_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def work(x: torch.Tensor) -> torch.Tensor:
        meeting.wait()  # passes only if the other device is here as well
        return x

    total, _ = place(ladder(work), [0, 0, 1, 0]).run([torch.ones(4)])
    assert total is not None and total.tolist() == [2.0] * 4


def test_what_another_device_gets_is_a_copy() -> None:
    got: list[int] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        got.append(x.data_ptr())
        return x + 1

    x = torch.ones(4)
    place(ladder(work), [0, 0, 1, 1]).run([x])
    assert len(set(got)) == 2 and x.data_ptr() in got


def test_an_error_ends_all_devices() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        if threading.current_thread().name.startswith("vgraph cpu #1"):
            raise ValueError("broken")
        return x

    placed = place(ladder(work), [0, 0, 1, 0])
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            placed.run([torch.ones(4)])


def test_threads_are_the_device_s_own() -> None:
    before = torch.get_num_threads()
    four, one = DeviceStream("cpu*4", CPU, 4), DeviceStream("cpu", CPU, 1)
    assert [d.submit(torch.get_num_threads).result() for d in (four, one, four)] == [4, 1, 4]
    assert torch.get_num_threads() == before
    assert DeviceStream("later", CPU, 3).submit(torch.get_num_threads).result() == 3


def test_factories_are_known() -> None:
    result = Value(0, SHARED, torch.float32, (2,))
    aten = torch.ops.aten
    made = [Op(aten.zeros.default, ([2],), {}, (result,)), Op(aten.neg.default, (result,), {}, (result,))]
    assert [_makes_from_nothing(op) for op in made] == [True, False]


def test_every_op_is_measured() -> None:
    program = ladder(lambda x: x * 2)
    ticks: list[int] = []
    seconds = measure_ops(program, [torch.ones(4)], DeviceStream("cpu", CPU), repeats=2, tick=lambda: ticks.append(1))
    assert sorted(seconds) == [0, 1, 2] and all(s > 0 for s in seconds.values())
    assert len(ticks) == 9


def test_ops_that_fail_are_left_out() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    assert measure_ops(ladder(work), [torch.ones(4)], DeviceStream("cpu", CPU), repeats=1) == {}


def test_links_are_measured() -> None:
    latency, bandwidth = measure_link(DeviceStream("a", CPU), DeviceStream("b", CPU), repeats=2)
    assert 0 < latency < 1 and bandwidth > 0
