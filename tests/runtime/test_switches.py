"""Every idea of the engine can be switched off, and no number changes with it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.runtime.engine_models import GRAPHS, MODELS, PLAIN, WIDTH, Gates, features, outcome_with
from tests.tables import table
from vgraph import compiler
from vgraph.ir.program import op_name
from vgraph.ir.schedule import Phase
from vgraph.runtime import windows

pytestmark = pytest.mark.usefixtures("with_kernels")
ALL = (
    "VGRAPH_KERNELS",
    "VGRAPH_LAZY",
    "VGRAPH_EAGER",
    "VGRAPH_LEAVES",
    "VGRAPH_NATIVE",
    "VGRAPH_PRODUCTS",
    "VGRAPH_HOIST",
    "VGRAPH_SIBLINGS",
)


EVERY_MODEL = {**MODELS, "gates": Gates}


def switches(*off: str) -> dict[str, str]:
    return {name: "0" if name.removeprefix("VGRAPH_").lower() in off else "1" for name in ALL}


WAYS = {
    "all on": (),
    "base": ("kernels", "lazy", "eager", "leaves", "native", "products", "siblings"),
    "siblings apart": ("siblings",),
    "fusion": ("lazy", "eager", "leaves", "native", "products"),
    "not lazy": ("lazy",),
    "not eager": ("eager",),
    "neither, on torch": ("kernels", "lazy", "eager"),
    "not hoisted": ("hoist",),
}


def case(name: str, graph: str) -> tuple[vgraph.Graph, vgraph.VertexFunction, Tensor]:
    """The same numbers at every call."""
    torch.manual_seed(0)
    g, model = GRAPHS[graph](), EVERY_MODEL[name]().double()
    return g, model, features(g)


@cache
def plain(name: str, graph: str) -> list[Tensor]:
    """What torch's operators give, which no switch changes: once for all ways."""
    g, model, x = case(name, graph)
    with pytest.MonkeyPatch.context() as patch:
        return outcome_with(patch, PLAIN, model, g, x)


@pytest.mark.parametrize(("name", "graph", "way"), table([*EVERY_MODEL], ["dag", "trees"], [*WAYS]))
def test_every_way_gives_the_same_numbers(name: str, graph: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, (g, model, x) = plain(name, graph), case(name, graph)
    for one, two in zip(outcome_with(monkeypatch, switches(*WAYS[way]), model, g, x), wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


class Rich(vgraph.VertexFunction):
    """Two states; slots reduced in many ways; a child by its place; what leaves cannot leave out."""

    def __init__(self) -> None:
        super().__init__(states={"h": WIDTH, "c": WIDTH})
        self.W, self.U, self.V = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.score, self.norm = nn.Linear(WIDTH, 1), nn.LayerNorm(WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x")
        gate, new = self.U(child["h"].mean()).chunk(2, -1)
        seen = (self.score(torch.tanh(self.V(child["h"]) + self.W(x))).softmax() * child["c"]).sum()
        c = torch.sigmoid(gate) * torch.tanh(new + seen) + child["c"].max() * v.gather(1, default=0.5)["h"]
        h = torch.tanh(self.norm(c + x) + torch.cos(child["h"].min()) / (v.in_degree.to(x.dtype) + 1).unsqueeze(-1))
        v.scatter(h=h, c=c)
        v.push(h=h, c=self.V(c))


# Twelve rows after Plackett and Burman: every two columns show all four settings of their two switches.
FACTORS = (*ALL, "VGRAPH_DEGREES", "VGRAPH_WINDOWS", "policy")
SEED = "11011100010"
ROWS = [*(SEED[-i:] + SEED[:-i] for i in range(11)), "0" * 11]


def test_rows_hold_all_pairs() -> None:
    for one in range(len(FACTORS)):
        for two in range(one):
            assert len({(row[one], row[two]) for row in ROWS}) == 4


def rich() -> tuple[vgraph.Graph, vgraph.VertexFunction, Tensor]:
    """The same numbers at every call."""
    torch.manual_seed(0)
    model, g = Rich().double(), vgraph.batch([GRAPHS[name]() for name in ("dag", "trees", "points")])
    return g, model, features(g)


@cache
def plain_rich() -> list[Tensor]:
    """As ``plain``."""
    g, model, x = rich()
    with pytest.MonkeyPatch.context() as patch:
        return outcome_with(patch, PLAIN, model, g, x)


@pytest.mark.parametrize("row", ROWS)
def test_every_two_switches_together(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, (g, model, x) = plain_rich(), rich()
    chosen = dict(zip(FACTORS, row, strict=True))
    model.policy = "serial" if chosen.pop("policy") == "1" else "frontier"
    for name in ("WINDOW_BYTES", "LEAST_ROWS", "LEAST_BYTES"):
        monkeypatch.setattr(windows, name, 1)
    found = outcome_with(monkeypatch, chosen, model, g, x)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    with torch.no_grad():
        called = list(model(g, x=x).values())
    for one, two in zip((*found, *called), (*wanted, *wanted[: len(called)]), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_policies_agree_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no sum over vertices made is the same bit for bit under both policies: outputs, and gradients of rows."""
    g, model = GRAPHS["trees"](), MODELS["child-sum"]().double()
    x = features(g)
    one = outcome_with(monkeypatch, switches("products"), model, g, x)
    model.policy = "serial"
    two = outcome_with(monkeypatch, switches("products"), model, g, x)
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


def test_what_is_not_eager_or_lazy_runs_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Phase] = []
    real = compiler._compile_phases

    def watched(program, phases, *rest):
        seen.extend(phases)
        return real(program, phases, *rest)

    monkeypatch.setattr(compiler, "_compile_phases", watched)
    g, model = GRAPHS["trees"](), MODELS["child-sum"]().double()
    x = features(g)
    products = dict[str, int]()
    for way in ("all on", "not lazy", "not eager", "base"):
        seen.clear()
        outcome_with(monkeypatch, switches(*WAYS[way]), model, g, x)
        once = [op for phase in seen if not phase.is_loop for op in phase.ops]
        products[way] = sum(
            hasattr(op.target, "overloadpacket") and op_name(op.target) in ("mm", "addmm") for op in once
        )
    assert products["all on"] > products["not eager"] > products["base"] == 0, products
    assert products["all on"] > products["not lazy"] > 0, products


@pytest.mark.parametrize("way", ["all on", "siblings apart"])
def test_products_of_the_same_rows_are_one(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three gates that read the same sum are one product, forward; backward each has a sum of its own."""
    seen: list[Phase] = []
    real = compiler._compile_phases

    def watched(program, phases, *rest):
        seen.extend(phases)
        return real(program, phases, *rest)

    monkeypatch.setattr(compiler, "_compile_phases", watched)
    g, model = GRAPHS["trees"](), Gates().double()
    outcome_with(monkeypatch, switches(*WAYS[way]), model, g, features(g))
    loops = [phase for phase in seen if phase.is_loop and phase.part != "leaves"]
    products = [
        [op for op in phase.ops if str(op.target) in ("aten.mm.default", "aten.addmm.default")] for phase in loops
    ]
    counts = set(map(len, products))
    assert min(counts) == (2 if way == "all on" else 4), counts
