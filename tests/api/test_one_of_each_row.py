"""``x[torch.arange(len(x)), ids]`` in a vertex function: one number, or one part, of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FunctionError

G = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3]))
IDS = torch.tensor([0, 1, -1, 2])
Pick = Callable[[Tensor, Tensor], Tensor]


class Picks(vgraph.VertexFunction):
    def __init__(self, pick: Pick) -> None:
        super().__init__()
        self.pick = pick

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.pull("x") + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(picked=self.pick(h, v.pull("ids")))


PICKS: dict[str, Pick] = {
    "shape": lambda h, ids: h[torch.arange(h.shape[0]), ids],
    "size": lambda h, ids: h[torch.arange(ids.size(0)), ids].exp(),
    "len": lambda h, ids: h[torch.arange(len(h)), ids],
    "matrices": lambda h, ids: h.unsqueeze(-1).expand(-1, -1, 2)[torch.arange(h.shape[0]), ids],
}


@pytest.mark.parametrize("name", PICKS)
def test_it_is_captured_and_as_in_torch(name: str) -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    function, h = Picks(PICKS[name]), list[Tensor]()
    for row, below in zip(x, ([], [0], [1], [0, 2]), strict=True):
        h.append(torch.tanh(sum((h[i] for i in below), row)))
    wanted = PICKS[name](torch.stack(h), IDS)
    found = function(G, x=x, ids=IDS)["picked"]
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (found, wanted)]
    torch.testing.assert_close(*grads)
    assert ": captured" in str(vgraph.explain(function, G, x=x, ids=IDS))


@pytest.mark.parametrize(
    "index",
    [
        lambda h: torch.arange(h.shape[0]).flip(0),
        lambda h: torch.arange(h.shape[0]) * 0,
    ],
)
def test_other_numbers_than_those_of_rows_are_refused(index: Any) -> None:
    with pytest.raises(FunctionError, match="mixes vertices, or the slots of different vertices"):
        Picks(lambda h, ids: h[index(h), ids])(G, x=torch.randn(4, 3), ids=IDS)
