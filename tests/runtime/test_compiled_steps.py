"""Steps of a worker within ``torch.compile``: a compiler asks fake tensors how the results of operators lie."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.departures import early_departures
from vgraph.ir.exchange import Exchange, Fetch, Piece
from vgraph.ir.index_set import IndexSet
from vgraph.ir.program import Input, Op, Program, Value
from vgraph.ir.space import SHARED
from vgraph.runtime.distributed.compiled import CompiledWorker, Turns, worker_of

aten = torch.ops.aten
SHAPE = (2, 4, 6)


def value(number: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Value:
    return Value(number, SHARED, dtype, shape)


def one_worker() -> Any:
    """A group of one of two workers, to which the other sends what it is sent."""
    return SimpleNamespace(
        rank=0,
        device=torch.device("cpu"),
        departures_of=lambda program: early_departures(program, ()),
        send=lambda exchange, packed: SimpleNamespace(wait=packed.clone),
    )


@torch.compiler.allow_in_graph
def step(worker: str, gradient: Tensor, x: Tensor) -> Tensor:
    turns = Turns(worker_of(int(worker)), gradient)
    given: Mapping[str, Tensor] = {"gradient": gradient, "x": x}
    (found,) = turns.run(given)
    assert found is not None
    return turns.end(found)


def compiled_and_not(op: Op, gradient: Tensor, x: Tensor) -> list[Tensor]:
    """What an op gives of a result of which fake tensors have other strides, compiled and by itself."""
    one, other, (made,) = value(0, SHAPE), value(1, SHAPE), op.operands()
    lies = Op(aten.softplus_backward.default, (one, other, 1.0, 20.0), {}, (made,))
    program = Program("step", (Input(one, "gradient"), Input(other, "x")), (lies, op), op.results)
    worker = CompiledWorker(program, one_worker(), {}, (), lambda: None)
    number = str(worker.number)
    called = torch.compile(lambda *given: step(number, *given), fullgraph=True, backend="aot_eager")
    return [called(gradient, x), step(number, gradient, x)]


def test_what_is_reshaped_sent_or_read_as_dense_lies_as_it_may() -> None:
    """Torch's kernel lays the gradient of a softplus out as the first operand lies, its fake as the second."""
    dense, turned = torch.randn(SHAPE).double(), torch.randn(6, 4, 2).double().permute(2, 1, 0)
    need = tuple(IndexSet.whole(size) for size in SHAPE)
    exchange = Exchange(0, torch.float64, (need, need), (need, need), ((Piece(1, need),), (Piece(0, need),)))
    made = value(2, SHAPE)
    ops = (
        Op(aten.reshape.default, (made, [8, 6]), {}, (value(3, (8, 6)),)),
        Op(aten.view.dtype, (made, torch.float32), {}, (value(3, (2, 4, 12), torch.float32),)),
        Op(Fetch(exchange, 0), (made,), {}, (value(3, SHAPE),)),
    )
    for op in ops:
        for pair in ((dense, turned), (turned, dense)):
            found, wanted = compiled_and_not(op, *pair)
            assert torch.equal(found, wanted), op.target
