"""Rows that edges read from copies of some features at a time: the same bits as whole rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.runtime.cpu import kernels
from vgraph.runtime.cpu.kernels import CpuKernel

NODES, EDGES = 60, 1500
Run = Callable[[vgraph.Graph], None]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each call of a kernel that may copy rows, whether it did."""
    found: list[bool] = []
    room = CpuKernel._room_for_tiles

    def noted(kernel: CpuKernel, *given: object) -> Tensor | None:
        made = room(kernel, *given)  # pyright: ignore[reportArgumentType]
        found.append(made is not None)
        return made

    monkeypatch.setattr(CpuKernel, "_room_for_tiles", noted)
    return found


def graph(width: int, dtype: torch.dtype, nodes: int = NODES) -> vgraph.Graph:
    torch.manual_seed(0)
    made = vgraph.graph((torch.randint(nodes, (EDGES,)), torch.randint(nodes - 3, (EDGES,))), num_nodes=nodes)
    made.ndata["x"] = torch.randn(nodes, width).to(dtype).requires_grad_()
    made.ndata["z"] = torch.randn(nodes, width).to(dtype)
    made.edata["w"] = torch.rand(EDGES, 1).to(dtype).requires_grad_()
    made.ndata["s"] = torch.rand(nodes, 1).to(dtype)
    return made


def by(message: object, reduce: object) -> Run:
    return lambda g: g.update_all(message, reduce)  # pyright: ignore[reportArgumentType]


def weighed(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
    return {"y": (torch.softmax(nodes.mailbox["a"], 1) * nodes.mailbox["m"]).sum(1)}


def joined(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
    box = nodes.mailbox["m"]
    return {"y": torch.cat([box.sum(1), box.amax(1) * nodes.data["s"], box.mean(1), nodes.data["x"]], 1)}


def aggregated(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
    box = nodes.mailbox["m"]
    return {"y": box.sum(1) + box.std(1) + box.amax(1) - box.amin(1)}


PROGRAMS: dict[str, Run] = {
    "sum": by(fn.copy_u("x", "m"), fn.sum("m", "y")),
    "mean": by(fn.copy_u("x", "m"), fn.mean("m", "y")),
    "max": by(fn.copy_u("x", "m"), fn.max("m", "y")),
    "weighted": by(fn.u_mul_e("x", "w", "m"), fn.sum("m", "y")),
    "both ends": by(lambda e: {"m": torch.relu(e.src["x"] + e.dst["x"])}, fn.sum("m", "y")),
    "scaled": by(lambda e: {"m": e.src["x"] * e.dst["s"]}, lambda v: {"y": v.mailbox["m"].sum(1) / (1 + v.data["s"])}),
    "softmax": by(lambda e: {"a": e.src["x"], "m": e.src["z"]}, weighed),
    "both of two": by(lambda e: {"m": torch.minimum(e.src["x"], e.src["z"])}, joined),
}  # fmt: skip


def results(run: Run, width: int, dtype: torch.dtype) -> list[Tensor]:
    g = graph(width, dtype)
    run(g)
    inputs = [t for t in (g.ndata["x"], g.edata["w"]) if t.requires_grad]
    rows = g.ndata["y"]
    weight = torch.linspace(-1, 1, rows.numel()).view_as(rows).to(dtype)
    gradients = torch.autograd.grad((rows * weight).sum(), inputs, allow_unused=True)
    return [rows.detach(), *(one for one in gradients if one is not None)]


@pytest.mark.parametrize(("width", "dtype"), [(96, torch.float32), (48, torch.float64), (128, torch.bfloat16)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_copies_give_the_same_bits_as_whole_rows(
    name: str, width: int, dtype: torch.dtype, copied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(PROGRAMS[name], width, dtype)
    assert not any(copied)
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    in_tiles = results(PROGRAMS[name], width, dtype)
    assert any(copied) or (name, dtype) == ("softmax", torch.bfloat16)  # whose weights are numbers of another dtype
    for mine, theirs in zip(in_tiles, whole, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("heads", [2, 4])
def test_rows_that_are_joined_between_heads_are_taken_whole(
    heads: int, copied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of each head's row lies apart from the next one: no run of features is one of the result's."""

    def of_heads(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
        box = nodes.mailbox["m"].unflatten(2, (heads, -1))
        return {"y": torch.cat([box.sum(1), box.amax(1)], 2).flatten(1)}

    run = by(fn.copy_u("x", "m"), of_heads)
    whole = results(run, 128, torch.float32)
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    for mine, theirs in zip(results(run, 128, torch.float32), whole, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("what", "run", "width"),
    [
        ("a row is a tile", PROGRAMS["sum"], 32),
        ("a row is no whole number of tiles", PROGRAMS["sum"], 100),
        ("features are summed", by(lambda e: {"m": (e.src["x"] * e.dst["x"]).sum(1)}, fn.sum("m", "y")), 64),
        ("parts of a row are read", by(lambda e: {"m": e.src["x"][:, :32] + e.src["x"][:, 32:]}, fn.sum("m", "y")), 64),
        ("messages are stored", lambda g: g.apply_edges(lambda e: {"z": e.src["x"] * 2}), 64),
        ("arithmetic takes the time", by(lambda e: {"m": torch.relu(e.src["x"] + e.dst["x"])}, aggregated), 64),
        ("an edge computes a number", by(lambda e: {"m": e.src["x"] * torch.exp(e.data["w"])}, fn.sum("m", "y")), 64),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_in_tiles_is_not(
    what: str, run: Run, width: int, copied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_MOST_WHOLE", 0)
    with torch.no_grad():
        run(graph(width, torch.float32))
    assert not copied, what


def test_rows_are_copied_where_they_are_larger_than_caches_and_read_often(
    copied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 edges a row, and 8 MB of rows, by the tables of the decision's page."""
    with torch.no_grad():
        PROGRAMS["sum"](graph(64, torch.float32))
        monkeypatch.setattr(kernels, "_MOST_WHOLE", NODES * 256)
        PROGRAMS["sum"](graph(64, torch.float32))
        PROGRAMS["sum"](graph(64, torch.float32, nodes=EDGES // 16 + 1))
    assert copied == [False, True, False]
