"""Rows that a kernel makes ahead for the edges of its own: the same bits as rows that another kernel stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.compiler
import vgraph.function as fn
from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.capture import capture
from vgraph.fusion.rows_ahead import join_rows_ahead
from vgraph.ir.kernel import Unit
from vgraph.ir.schedule import Phase
from vgraph.runtime.cpu import kernels

SOURCES, NODES, EDGES = 70, 60, 1500
Message = Callable[[EdgeBatch], dict[str, Tensor]]
Reduce = Callable[[NodeBatch], dict[str, Tensor]]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    """The kernels of two parts that were made."""
    found: list[Unit] = []

    def noted(phase: Phase, units: Sequence[Unit], wanted: Iterable[int]) -> tuple[Unit, ...]:
        made = join_rows_ahead(phase, units, wanted)
        found.extend(unit for unit in made if unit.kernel is not None and unit.kernel.parts)
        return made

    monkeypatch.setattr(vgraph.compiler, "join_rows_ahead", noted)
    return found


def graph(width: int, dtype: torch.dtype, *, is_bipartite: bool) -> vgraph.Graph:
    torch.manual_seed(0)
    sources = SOURCES if is_bipartite else NODES
    ends = (torch.randint(sources, (EDGES,)), torch.randint(NODES - 3, (EDGES,)))
    if is_bipartite:
        made = vgraph.heterograph({("a", "to", "b"): ends}, num_nodes_dict={"a": sources, "b": NODES})
        senders, receivers = made.nodes["a"].data, made.nodes["b"].data
    else:
        made = vgraph.graph(ends, num_nodes=NODES)
        senders = receivers = made.ndata
    for data, count in ((senders, sources), (receivers, NODES)):
        data["x"] = torch.randn(count, width).to(dtype).requires_grad_()
        data["z"] = torch.randn(count, width).to(dtype)
        data["s"] = torch.rand(count, 1).to(dtype)
    made.edata["w"] = torch.rand(EDGES, 1).to(dtype)
    return made


def summed(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"y": torch.relu(nodes.mailbox["m"].sum(1)) * nodes.data["s"]}


def averaged(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"y": nodes.mailbox["m"].mean(1)}


def of_both(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"y": nodes.mailbox["m"].sum(1) + nodes.mailbox["n"].mean(1)}


SCALED: Message = lambda e: {"m": e.src["x"] * e.src["s"]}  # noqa: E731
PROGRAMS: dict[str, tuple[Message, Reduce]] = {
    "scaled": (SCALED, summed),
    "mean": (SCALED, averaged),
    "some steps": (lambda e: {"m": torch.tanh(e.src["x"] * e.src["s"] + e.src["z"]) + 1}, summed),
    "weighted": (lambda e: {"m": e.src["x"] * e.src["s"] * e.data["w"]}, summed),
    "as they lie, too": (lambda e: {"m": e.src["z"] + torch.relu(e.src["x"])}, summed),
    "two rows": (lambda e: {"m": e.src["x"] * e.src["s"], "n": e.src["z"] + e.src["s"]}, of_both),
}  # fmt: skip


def results(name: str, width: int, dtype: torch.dtype, *, is_bipartite: bool) -> list[Tensor]:
    g = graph(width, dtype, is_bipartite=is_bipartite)
    message, reduce = PROGRAMS[name]
    capture.forget()  # how kernels are made differs between calls of the same functions
    g.update_all(message, reduce)  # pyright: ignore[reportArgumentType]
    senders, rows = (g.srcdata["x"], g.dstdata["y"]) if is_bipartite else (g.ndata["x"], g.ndata["y"])
    weight = torch.linspace(-1, 1, rows.numel()).view_as(rows).to(dtype)
    return [rows.detach(), *torch.autograd.grad((rows * weight).sum(), [senders])]


@pytest.mark.parametrize(
    ("name", "width", "dtype", "is_bipartite"),
    [
        *((name, 96, torch.float32, False) for name in PROGRAMS),
        ("weighted", 48, torch.float64, True),
        ("some steps", 128, torch.bfloat16, False),
        ("two rows", 64, torch.float32, True),
    ],
)
def test_rows_made_ahead_have_the_same_bits(
    name: str, width: int, dtype: torch.dtype, is_bipartite: bool, joined: list[Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(name, width, dtype, is_bipartite=is_bipartite)
    assert joined
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    in_tiles = results(name, width, dtype, is_bipartite=is_bipartite)
    monkeypatch.setattr(vgraph.compiler, "join_rows_ahead", lambda phase, units, wanted: units)
    apart = results(name, width, dtype, is_bipartite=is_bipartite)
    for mine, tiled, theirs in zip(whole, in_tiles, apart, strict=True):
        assert torch.equal(mine, theirs)
        assert torch.equal(tiled, theirs)


@pytest.mark.parametrize(
    ("what", "message", "reduce"),
    [
        ("rows as they lie", fn.copy_u("x", "m"), fn.sum("m", "y")),
        ("a derivative reads them, too", lambda e: {"m": torch.tanh(e.src["x"])}, fn.sum("m", "y")),
        ("features are summed", lambda e: {"m": e.src["x"] / e.src["x"].sum(1, keepdim=True)}, summed),
        ("a row is a tile", lambda e: {"m": e.src["x"][:, :32] * e.src["s"]}, averaged),
    ],
)
def test_other_kernels_stay_as_they_are(
    what: str, message: Message, reduce: Reduce, joined: list[Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    g = graph(96, torch.float32, is_bipartite=False)
    capture.forget()
    g.update_all(message, reduce)
    assert not joined, what


def test_rows_that_are_made_ahead_are_never_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call takes of the memory: its result and a tile."""
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    rooms: list[tuple[tuple[int, ...], torch.dtype]] = []
    found = kernels.CpuKernel.run

    def noted(kernel: kernels.CpuKernel, *given: object) -> tuple[Tensor, ...]:
        empty = kernel.empty

        def made(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
            rooms.append((tuple(shape), dtype))
            return empty(shape, dtype)

        with monkeypatch.context() as patch:
            patch.setattr(kernel, "empty", made)
            return found(kernel, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(kernels.CpuKernel, "run", noted)
    g = graph(96, torch.float32, is_bipartite=False)
    capture.forget()
    with torch.no_grad():
        g.update_all(SCALED, summed)
    assert rooms == [((NODES * 128,), torch.uint8)]  # a result of this size is torch's own


def test_a_row_that_is_made_ahead_is_read_once_an_edge() -> None:
    g = graph(96, torch.float32, is_bipartite=False)
    capture.forget()
    (function,) = vgraph.explain(g, SCALED, summed).functions
    (kernel,) = (step for phase in function.programs[0].phases for step in phase.steps)
    assert kernel.bytes_read >= EDGES * 96 * 4
