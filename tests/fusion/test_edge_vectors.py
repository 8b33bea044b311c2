"""Single numbers of edges side by side: the scores of one head, their exponentials, and what is made of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph import compiler

IN_DEGREES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 127, 128, 129, 300)  # around the edges of a block, and of a turn


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of kernels that are printed meanwhile."""
    found, build = list[str](), compiler.build_kernels
    monkeypatch.setattr(compiler, "find_known", lambda specs: None)
    monkeypatch.setattr(
        compiler, "build_kernels", lambda source, count: (found.append(source), build(source, count))[1]
    )
    return found


def graph() -> vgraph.Graph:
    torch.manual_seed(0)
    ends = [(int(torch.randint(0, 40, ())), v) for v, degree in enumerate(IN_DEGREES) for _ in range(degree)]
    src, dst = (
        torch.tensor(end)[torch.randperm(len(ends), generator=torch.Generator().manual_seed(1))]
        for end in zip(*ends, strict=True)
    )
    return vgraph.graph((src, dst), num_nodes=40)


def attention(edges: Any) -> dict[str, Tensor]:
    score = torch.nn.functional.leaky_relu(edges.src["a"] + edges.dst["b"], 0.2)
    return {"m": edges.src["h"], "s": score}


def dot(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "s": (edges.src["h"] * edges.dst["h"]).sum(1, keepdim=True) + edges.data["w"]}


def weighed(nodes: Any) -> dict[str, Tensor]:
    return {"o": (nodes.mailbox["s"].softmax(1) * nodes.mailbox["m"]).sum(1)}


def rows(g: vgraph.Graph, width: int, heads: int, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(2)
    made = {
        "h": (g.num_nodes(), width),
        "a": (g.num_nodes(), heads),
        "b": (g.num_nodes(), heads),
        "w": (g.num_edges(), heads),
    }
    return {name: torch.randn(shape, dtype=dtype).requires_grad_() for name, shape in made.items()}


def by_vgraph(g: vgraph.Graph, given: dict[str, Tensor], message: Any, reduce: Any) -> list[Tensor]:
    with g.local_scope():
        g.ndata.update({name: given[name] for name in "hab"})
        g.edata["w"] = given["w"]
        g.update_all(message, reduce)
        out = g.ndata["o"]
    wanted = [given[name] for name in ("hab" if message is attention else "hw")]
    return [out.detach(), *torch.autograd.grad(out.square().sum(), wanted)]


def by_hand(g: vgraph.Graph, given: dict[str, Tensor], message: Any) -> list[Tensor]:
    """The same in double precision, a vertex at a time."""
    named = {name: value.detach().double().requires_grad_() for name, value in given.items()}
    src, dst = (end.long() for end in g.edges())
    if message is attention:
        scores = torch.nn.functional.leaky_relu(named["a"][src] + named["b"][dst], 0.2)
    else:
        scores = (named["h"][src] * named["h"][dst]).sum(1, keepdim=True) + named["w"]
    out = []
    for v in range(g.num_nodes()):
        mine = (dst == v).nonzero().flatten()
        out.append((scores[mine].softmax(0) * named["h"][src[mine]]).sum(0))
    total = torch.stack(out)
    wanted = [named[name] for name in ("hab" if message is attention else "hw")]
    return [total.detach(), *torch.autograd.grad(total.square().sum(), wanted)]


@pytest.mark.parametrize(
    ("message", "width", "dtype", "within"),
    [
        (attention, 3, torch.float32, 2e-4),
        (attention, 40, torch.float32, 2e-4),
        (attention, 10, torch.float64, 1e-10),
        (dot, 10, torch.float32, 2e-4),
        (dot, 40, torch.float64, 1e-10),
    ],
)
def test_one_head(sources: list[str], message: Any, width: int, dtype: torch.dtype, within: float) -> None:
    g = graph()
    given = rows(g, width, 1, dtype)
    found = by_vgraph(g, given, message, weighed)
    assert any("vg_some_rows" in source for source in sources)
    for one, other in zip(found, by_hand(g, given, message), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=within, atol=within)


def test_bfloat16() -> None:
    g = graph()
    given = rows(g, 16, 1, torch.bfloat16)
    found = by_vgraph(g, given, attention, weighed)
    for one, other in zip(found, by_hand(g, given, attention), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0.05, atol=0.1)


def test_masked_scores() -> None:
    """An edge of -inf weighs nothing, a vertex of none but such is NaN as torch's softmax, and so is one of NaN."""
    g = graph()
    given = rows(g, 8, 1, torch.float32)
    dst, w = g.edges()[1].long(), given["w"].detach()
    w[::3] = -torch.inf
    w[dst == 3] = -torch.inf
    w[(dst == 9).nonzero()[0]] = torch.nan
    given["w"] = w.requires_grad_()

    def plain(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"], "s": edges.data["w"]}

    with g.local_scope():
        g.ndata["h"], g.edata["w"] = given["h"], given["w"]
        g.update_all(plain, weighed)
        found = g.ndata["o"].detach()
    src = g.edges()[0].long()
    for v in range(g.num_nodes()):
        mine = (dst == v).nonzero().flatten()
        wanted = (w.detach()[mine].softmax(0) * given["h"].detach()[src[mine]]).sum(0)
        torch.testing.assert_close(found[v], wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert found[3].isnan().all() and found[9].isnan().all() and not found[12].isnan().any()


def test_threads_and_parts_give_the_same_bits() -> None:
    g = graph()
    given = rows(g, 10, 1, torch.float32)
    first = by_vgraph(g, given, attention, weighed)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = by_vgraph(g, given, attention, weighed)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_numbers_of_edges_that_are_stored(sources: list[str]) -> None:
    """What is kept for the user lies edge by edge, also behind the last whole block."""
    g = graph()
    given = rows(g, 4, 1, torch.float32)
    g.ndata.update({name: given[name].detach() for name in "ab"})
    g.apply_edges(lambda edges: {"e": torch.exp(edges.src["a"] * edges.dst["b"])})
    src, dst = (end.long() for end in g.edges())
    assert any("vg_store_some" in source for source in sources)
    torch.testing.assert_close(g.edata["e"], torch.exp(given["a"][src] * given["b"][dst]).detach())


def test_rows_that_are_read_again_after_a_number_of_theirs(sources: list[str]) -> None:
    """A row that is made edge by edge, a number of it, and the row once more: of every edge its own."""
    g = graph()
    given = rows(g, 5, 1, torch.float64)
    src, dst = (end.long() for end in g.edges())

    def message(edges: Any) -> dict[str, Tensor]:
        row = torch.exp(edges.src["h"] * edges.dst["h"])
        return {"m": row, "w": torch.exp(-row.sum(1, keepdim=True))}

    def reduce(nodes: Any) -> dict[str, Tensor]:
        both = nodes.mailbox["m"] * nodes.mailbox["w"]
        return {"o": both.sum(1) + nodes.mailbox["w"].sum(1)}

    g.ndata["h"] = given["h"]
    g.update_all(message, reduce)
    assert any("vg_some_rows" in source for source in sources)
    row = torch.exp(given["h"][src] * given["h"][dst])
    w = torch.exp(-row.sum(1, keepdim=True))
    wanted = torch.zeros_like(given["h"]).index_add(0, dst, row * w + w)
    torch.testing.assert_close(g.ndata["o"], wanted)
    for one, other in zip(
        *(torch.autograd.grad(out.square().sum(), given["h"]) for out in (g.ndata["o"], wanted)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("heads", "message"),
    [(4, attention), (1, lambda edges: {"m": edges.src["h"], "s": edges.data["w"] * 2})],
)
def test_loops_that_gain_nothing(sources: list[str], heads: int, message: Any) -> None:
    """Several heads fill vectors themselves, and a weight that is only read or doubled is cheap."""
    g = graph()
    given = rows(g, 4, heads, torch.float32)
    g.ndata.update({name: value.detach() for name, value in given.items() if name != "w"})
    g.edata["w"] = given["w"].detach()

    def summed(nodes: Any) -> dict[str, Tensor]:
        weights = nodes.mailbox["s"].softmax(1) if heads > 1 else nodes.mailbox["s"]
        return {"o": (weights * nodes.mailbox["m"]).sum(1)}

    g.update_all(message, summed)
    assert sources and not any("vg_some_rows" in source for source in sources)


def test_a_peak_is_of_the_edges_of_its_vertex_alone(sources: list[str]) -> None:
    """Scores that are made edge by edge: what earlier vertices left behind the last edge's was among them."""
    degrees = (9, 1, 3, 8, 2)
    dst = torch.tensor([v for v, degree in enumerate(degrees) for _ in range(degree)])
    g = vgraph.graph((torch.arange(len(dst)), dst), num_nodes=len(dst))
    h = torch.ones(len(dst), 4) * torch.linspace(30, 1, len(dst))[:, None]
    g.ndata["h"], g.ndata["q"] = h, torch.ones(len(dst), 4)

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"], "s": (edges.src["h"] * edges.dst["q"]).sum(1, keepdim=True) / 4}

    def reduce(nodes: Any) -> dict[str, Tensor]:
        s = nodes.mailbox["s"]
        e = torch.exp(s - s.max(1, keepdim=True).values)
        return {"o": (e * nodes.mailbox["m"]).sum(1) / e.sum(1).clamp(min=1), "e": e.sum(1)}

    g.update_all(message, reduce)
    assert any("vg_fill_some" in source for source in sources)
    groups = h[: len(dst)].split(degrees)
    wanted = torch.stack([(torch.softmax(rows.mean(1), 0)[:, None] * rows).sum(0) for rows in groups])
    torch.testing.assert_close(g.ndata["o"][: len(degrees)], wanted)
    sums = torch.stack([torch.exp(rows.mean(1) - rows.mean(1).max()).sum() for rows in groups])
    torch.testing.assert_close(g.ndata["e"][: len(degrees), 0], sums)
