"""Profiles: what they are keyed by, how they are kept, what they refuse; estimates where nothing can be run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.placing.baselines import place_round_robin
from vgraph.errors import DataError, PlacementError
from vgraph.ir.program import Input, Op, Program, Value
from vgraph.ir.space import SHARED
from vgraph.partition.placement.list_schedule import list_schedule
from vgraph.partition.placement.profile import Profile, op_key
from vgraph.partition.placement.program_graph import build_program_graph, placement_plan, split_gradients
from vgraph.partition.placement.roofline import estimate_seconds, num_operations, rates_of

aten = torch.ops.aten


class Writer:
    """Values and ops of a small dense Program."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.inputs: list[Input] = []
        self.count = 0

    def value(self, *shape: int, dtype: torch.dtype = torch.float32) -> Value:
        self.count += 1
        return Value(self.count, SHARED, dtype, shape)

    def given(self, name: str, *shape: int) -> Value:
        self.inputs.append(Input(self.value(*shape), name))
        return self.inputs[-1].value

    def op(self, target: object, args: tuple[object, ...], *shapes: tuple[int, ...]) -> Value:
        results = tuple(self.value(*shape) for shape in shapes)
        self.ops.append(Op(target, args, {}, results))
        return results[0]

    def program(self, *outputs: Value) -> Program:
        return Program("test", tuple(self.inputs), tuple(self.ops), outputs)


def perceptron(width: int = 8) -> Program:
    write = Writer()
    x, w = write.given("input:0", 4, width), write.given("parameter:w", width, width)
    turned = write.op(aten.t.default, (w,), (width, width))
    h = write.op(aten.mm.default, (x, turned), (4, width))
    return write.program(write.op(aten.relu.default, (h,), (4, width)))


def test_key_tells_shapes_dtypes_and_arguments_apart() -> None:
    write = Writer()
    x, y = write.value(4, 8), write.value(4, 8, dtype=torch.float64)
    keys = {op_key(Op(aten.sum.dim_IntList, (v, [d]), {}, (write.value(8),))) for v in (x, y) for d in (0, 1)}
    assert len(keys) == 4
    one, other = perceptron().ops[1], perceptron().ops[1]
    assert op_key(one) == op_key(other) == "mm(float32[4, 8], float32[8, 8]) -> float32[4, 8]"


def test_round_trip(tmp_path: Path) -> None:
    ops = perceptron().ops
    profile = Profile(links={"cpu -> cpu": (1e-6, 1e10)})
    profile.add("cpu", ops, {1: 2e-3, 2: 1e-5})
    profile.save(tmp_path / "profile.json")
    again = Profile.load(tmp_path / "profile.json")
    assert again == profile
    assert [again.cost(op, "cpu") for op in ops] == [0.0, 2e-3, 1e-5]


def test_ops_of_one_key_are_averaged() -> None:
    op = perceptron().ops[1]
    profile = Profile()
    profile.add("cpu", [op, op], {0: 1e-3, 1: 3e-3})
    assert profile.cost(op, "cpu") == 2e-3


def test_profile_of_another_model_is_refused() -> None:
    profile = Profile()
    profile.add("cpu", perceptron(8).ops, {1: 1e-3, 2: 1e-5})
    profile.check(perceptron(8).ops, ["cpu"])
    with pytest.raises(PlacementError, match=r"of another model: .* for 2 of 3 operators on cpu, the first is mm\("):
        profile.check(perceptron(16).ops, ["cpu"])
    with pytest.raises(PlacementError, match=r"no seconds for cpu\*2: it was made on cpu"):
        profile.check(perceptron(8).ops, ["cpu*2"])


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other"}', '{"format": "vgraph profile 1"}'])
def test_files_that_are_no_profile(text: str) -> None:
    with pytest.raises(DataError, match="is no profile of vgraph"):
        Profile.from_text(text)


def test_roofline_counts_operations() -> None:
    write = Writer()
    x, k, y = write.value(2, 3, 8, 8), write.value(5, 3, 3, 3), write.value(2, 5, 8, 8)
    convolution = Op(aten.convolution.default, (x, k, None), {}, (y,))
    assert num_operations(convolution) == 2 * y.row_bytes // 4 * 27
    both = Op(aten.convolution_backward.default, (y, x, k), {}, (x, k, write.value(0)))
    one = Op(aten.convolution_backward.default, (y, x, k), {}, (write.value(0), k, write.value(0)))
    assert num_operations(both) == 2 * num_operations(one) == 2 * num_operations(convolution)
    assert num_operations(perceptron().ops[1]) == 2 * 4 * 8 * 8


def test_roofline_is_the_slower_of_the_two() -> None:
    rates = rates_of("V100-32GB")
    small, product = perceptron(8).ops[2], perceptron(4096).ops[1]
    assert estimate_seconds(perceptron().ops[0], "V100-32GB") == 0.0
    assert estimate_seconds(small, "V100-32GB") == pytest.approx(rates.launch, rel=0.1)
    assert estimate_seconds(product, "V100-32GB") == pytest.approx(
        rates.launch + (4 * 4096 * 8 + 4096 * 4096 * 4) / rates.bandwidth
    )


def test_program_graph() -> None:
    program = perceptron()
    built = build_program_graph(program, ["cpu"], [[0.0], [2.0], [1.0]], modules=["a", "a", "a"])
    graph = built.graph
    assert graph.names == ("input:0", "parameter:w", "a/t", "a/mm", "a/relu")
    assert graph.resident.tolist() == [128.0, 256.0, 0.0, 0.0, 0.0]
    assert graph.tensor_root.tolist() == [0, 1, 1, 3, 4]
    assert graph.tensor_kept.tolist() == [False, False, False, False, True]


def test_plan_puts_every_op_on_its_device() -> None:
    from vgraph.partition.placement.devices import uniform_cluster
    from vgraph.partition.rewrite.rewrite import rewrite

    program = perceptron()
    built = build_program_graph(program, ["device"], [[1.0], [2.0], [1.0]])
    cluster = uniform_cluster(3)
    timeline = list_schedule(built.graph, cluster, place_round_robin(built.graph, cluster))
    ordered, plan = placement_plan(built, timeline.device_of, timeline.order(), 3)
    parts = rewrite(ordered, plan)
    counts = [
        sum(op.target in (aten.t.default, aten.mm.default, aten.relu.default) for op in p.ops) for p in parts.programs
    ]
    assert counts == [1, 2, 1], "the weight travels, and its view is made where it is read, too"
    assert parts.communicated_bytes == 8 * 8 * 4 + 4 * 8 * 4


def test_gradients_of_a_convolution_are_two_ops() -> None:
    write = Writer()
    y, x, k = write.given("a", 2, 5, 8, 8), write.given("b", 2, 3, 8, 8), write.given("c", 5, 3, 3, 3)
    args = (y, x, k, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    write.op(aten.convolution_backward.default, args, (2, 3, 8, 8), (5, 3, 3, 3), (0,))
    results = write.ops[0].results
    program, origin = split_gradients(write.program(*results[:2]))
    assert origin == [0, 0]
    assert [op.args[-1] for op in program.ops] == [[True, False, False], [False, True, False]]
    assert program.ops[0].results[0] is results[0] and program.ops[1].results[1] is results[1]
    assert len({v.id for op in program.ops for v in op.results}) == 6
