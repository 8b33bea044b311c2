"""Reduce functions as people write them: the numbers of by hand, and which run over all degrees at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.api.agreement import way_of
from vgraph.capture import capture

NUM_NODES, NUM_EDGES = 20, 80
chance = torch.Generator().manual_seed(0)
SRC = torch.randint(NUM_NODES, (NUM_EDGES,), generator=chance)
DST = torch.randint(NUM_NODES - 2, (NUM_EDGES,), generator=chance)  # two without in-edges
H = torch.randn(NUM_NODES, 4, dtype=torch.float64, generator=chance).requires_grad_()
torch.manual_seed(0)
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True).double()
WALK = nn.GRU(4, 4, batch_first=True).double()
SENT = fn.copy_u("h", "m")

AT_ONCE: dict[str, Callable[[Any], Tensor]] = {
    "sum by keyword": lambda n: torch.sum(n.mailbox["m"], dim=1),
    "mean by the number of slots": lambda n: n.mailbox["m"].sum(1) / n.mailbox["m"].shape[1],
    "by size(1)": lambda n: n.mailbox["m"].sum(1) / n.mailbox["m"].size(1),
    "slots weighed by their number": lambda n: (n.mailbox["m"] * n.mailbox["m"].shape[1]).tanh().sum(1),
    "keepdim": lambda n: n.mailbox["m"].mean(dim=1, keepdim=True).squeeze(1),
    "extremes": lambda n: n.mailbox["m"].max(dim=1).values - torch.min(n.mailbox["m"], 1)[0],
    "standard deviation": lambda n: n.mailbox["m"].std(1, unbiased=False),
    "moments": lambda n: (n.mailbox["m"] ** 2).mean(1) - n.mailbox["m"].mean(1) ** 2,
    "logsumexp": lambda n: n.mailbox["m"].logsumexp(1),
    "attention by einsum": lambda n: torch.einsum(
        "nk,nkf->nf", torch.softmax(n.mailbox["m"].sum(-1), 1), n.mailbox["m"]
    ),
    "attention by bmm": lambda n: torch.bmm(
        torch.softmax(n.mailbox["m"].sum(-1), 1).unsqueeze(1), n.mailbox["m"]
    ).squeeze(1),
    "products": lambda n: n.mailbox["m"].prod(1),
}
BY_DEGREE: dict[str, Callable[[Any], Tensor]] = {
    "median": lambda n: n.mailbox["m"].median(1).values,
    "the first": lambda n: n.mailbox["m"][:, 0],
    "the last": lambda n: n.mailbox["m"][:, -1],
    "by a branch": lambda n: n.mailbox["m"].sum(1) if n.mailbox["m"].shape[1] > 3 else n.mailbox["m"].mean(1),
    "running sums": lambda n: n.mailbox["m"].cumsum(1).amax(1),
    "attention among slots": lambda n: ATTENTION(n.mailbox["m"], n.mailbox["m"], n.mailbox["m"])[0].mean(1),
}
UNCAPTURED: dict[str, Callable[[Any], Tensor]] = {"a GRU": lambda n: WALK(n.mailbox["m"])[1][0]}
WAYS = {
    name: way
    for way, functions in (("segments", AT_ONCE), ("degrees", BY_DEGREE), ("uncaptured", UNCAPTURED))
    for name in functions
}


class Slots:
    """The mailbox of one vertex."""

    def __init__(self, vertex: int) -> None:
        self.mailbox = {"m": H[SRC[vertex == DST]][None]}


@pytest.mark.guards
@pytest.mark.parametrize("name", WAYS)
def test_reduce(name: str) -> None:
    function = {**AT_ONCE, **BY_DEGREE, **UNCAPTURED}[name]
    rows = [function(Slots(v))[0] if bool((v == DST).any()) else torch.zeros(4).double() for v in range(NUM_NODES)]
    wanted = torch.stack(rows)
    capture.forget()
    g = vgraph.graph((SRC, DST), num_nodes=NUM_NODES)
    g.ndata["h"] = H

    def reduce(nodes: Any) -> dict[str, Tensor]:
        return {"out": function(nodes)}

    g.update_all(SENT, reduce)
    torch.testing.assert_close(g.ndata["out"], wanted, rtol=1e-9, atol=1e-10)
    assert way_of(SENT, reduce) == WAYS[name]
    weights = torch.linspace(-1, 1, wanted.numel(), dtype=wanted.dtype).view_as(wanted)
    mine, theirs = (torch.autograd.grad((out * weights).sum(), H)[0] for out in (g.ndata["out"], wanted))
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)
