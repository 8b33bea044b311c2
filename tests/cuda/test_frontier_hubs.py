"""Vertices of very many children or parents, within loops over frontiers as on a GPU: teams share their edges."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

import vgraph
from tests.cuda import shim
from tests.cuda.counted import on_meta
from tests.runtime.engine_models import MODELS, PLAIN, WIDTH, Gates, binary_tree, features, outcome, outcome_with
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.ir import hubs
from vgraph.runtime.cuda import frontier_loop as device_loop
from vgraph.runtime.cuda import kernel as device_kernel

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
SUMMING = ["gru", "attentive", "child-sum", "gates"]  # the others read two children


pytestmark = pytest.mark.usefixtures("launches")


def star(num_children: int) -> vgraph.Graph:
    """One vertex with all the others as its children."""
    return vgraph.graph((range(num_children), [num_children] * num_children))


def fan(num_parents: int) -> vgraph.Graph:
    """A vertex between a leaf and many parents, which have one parent in common."""
    middle = range(2, num_parents + 2)
    src = [0, *([1] * num_parents), *middle]
    return vgraph.graph((src, [1, *middle, *([num_parents + 2] * num_parents)]))


def forest(size: int) -> vgraph.Graph:
    """Hubs beside ordinary trees."""
    torch.manual_seed(2)
    return vgraph.batch([binary_tree(5), star(size), fan(size), binary_tree(9), star(3), star(size + 2)])


def counted() -> Counter[str]:
    kinds = ("chunk", "copy", "row", "hub")
    return Counter(next((kind for kind in kinds if f"_{kind}" in name), "section") for name in shim.launched)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs that a test can afford."""
    monkeypatch.setattr(hubs, "MOST_EDGES", 8)
    monkeypatch.setattr(hubs, "CHUNK", 3)


@needs_compiler
@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("name", SUMMING)
def test_hubs_in_frontiers(name: str, in_python: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, as torch's operators; threads in either order and any number of blocks give the same bits.

    In sections, and kernel by kernel where a loop runs in Python.
    """
    model, g = (MODELS | {"gates": Gates})[name]().double(), forest(13)
    x = features(g)
    wanted = outcome_with(monkeypatch, PLAIN, model, g, x)
    small(monkeypatch)
    g = forest(13)
    monkeypatch.setenv("VGRAPH_NATIVE", "0" if in_python else "1")
    runs: list[list[Tensor]] = []
    for backwards, blocks in [(False, 1 << 20), (True, 1), (False, 2)]:
        monkeypatch.setattr(device_kernel, "_MOST_BLOCKS", blocks)
        monkeypatch.setattr(device_loop, "_MOST_BLOCKS", blocks)
        capture.forget()
        shim.launched.clear()
        with shim.in_place_of_cpu(backwards=backwards):
            runs.append(outcome(model, g, x))
    assert counted()["chunk"] and any("section" in n for n in shim.launched) != in_python
    for one, two in zip(runs[0], wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
    for others in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], others, strict=True))


@needs_compiler
def test_a_sum_does_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A star of more children than MOST_EDGES, alone and beside trees."""
    model, size = MODELS["child-sum"](), hubs.MOST_EDGES + hubs.CHUNK + 5
    torch.manual_seed(3)
    rows = torch.randn(size + 1, WIDTH)
    found: list[Tensor] = []
    for parts in ([], [binary_tree(4)]):
        shim.launched.clear()
        capture.forget()
        g = vgraph.batch([star(size), *parts])
        x = torch.zeros(g.num_nodes(), WIDTH)
        x[: size + 1] = rows
        with shim.in_place_of_cpu():
            found.append(model(g, x=x)["h"][size].detach())
        assert counted()["chunk"]
    assert torch.equal(*found)


@needs_compiler
def test_walks_leave_hubs_to_sections(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    small(monkeypatch)
    monkeypatch.setenv("VGRAPH_WALK", "1")
    model, g = MODELS["gru"](), forest(13)
    with shim.in_place_of_cpu(), caplog.at_level("INFO", "vgraph"):
        outcome(model, g, features(g, torch.float32))
    assert not any("walk" in name for name in shim.launched) and counted()["chunk"]
    assert "very many edges" in caplog.text


@pytest.mark.parametrize("name", SUMMING)
def test_launches_and_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One upload a batch and no wait, hubs or not; only frontiers with hubs take more launches."""
    with on_meta() as notes:
        model = (MODELS | {"gates": Gates})[name]().to("meta")

        def launches(g: vgraph.Graph) -> Counter[str]:
            there = g.to("meta")
            x = torch.empty(there.num_nodes(), WIDTH, device="meta", requires_grad=True)
            notes.launched.clear()
            notes.copied.clear()
            with notes:
                torch.stack([o.sum() for o in model(there, x=x).values()]).sum().backward()
            loops = [n for n in notes.launched if "loop" in n or "mm.out" in n]
            return Counter("hubs" if any(k in n for k in ("_chunk", "_row", "_hub", "_copy")) else "all" for n in loops)

        launches(binary_tree(6))
        chain = vgraph.graph((range(9), range(1, 10)))
        plain = launches(vgraph.batch([chain, star(40)]))
        found = launches(vgraph.batch([chain, star(hubs.MOST_EDGES + 1)]))
        uploads = [waits for _, waits in notes.copied]
    assert found["all"] <= plain["all"] and not plain["hubs"] and found["hubs"]
    assert uploads.count(True) == 0 and len(uploads) == 1, uploads
