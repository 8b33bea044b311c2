"""Embeddings with row-sparse gradients, within a vertex function and before it, under the optimizers that take them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import vgraph
from vgraph.capture import capture

WORDS = 50


class Inside(vgraph.VertexFunction):
    """Looks words up itself."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__(states={"h": 4})
        self.embed, self.U = nn.Embedding(WORDS, 4, sparse=sparse), nn.Linear(4, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.embed(v.pull("word")) + self.U(v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


class Before(nn.Module):
    """Words stand at the leaves."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(WORDS, 4, sparse=sparse), Cell()

    def forward(self, g: vgraph.Graph, word: torch.Tensor) -> dict[str, torch.Tensor]:
        leaves = (g.in_degrees() == 0).nonzero().squeeze(1)
        return self.cell(g, x=vgraph.at(self.embed(word[leaves]), leaves))


class Cell(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__(states={"h": 4})
        self.U = nn.Linear(4, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.pull("x") + self.U(v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


@pytest.fixture(params=["0", "1"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", request.param)
    capture.forget()


def batch() -> tuple[vgraph.Graph, torch.Tensor]:
    tree = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    return vgraph.batch([tree] * 3), torch.tensor([3, 7, 1, 3, 9, 7, 7, 1, 2, 9, 3, 3, 1, 0, 0])


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("make", [Inside, Before])
def test_gradients_are_those_of_dense_rows(make: type) -> None:
    (g, word), dense = batch(), make(sparse=False).double()
    sparse = make(sparse=True).double()
    sparse.load_state_dict(dense.state_dict())
    for model in (dense, sparse):
        for _ in range(2):  # gradients add up
            (model(g, word=word)["h"] ** 2).sum().backward()
    found = sparse.embed.weight.grad
    assert found is not None and found.is_sparse and not dense.embed.weight.grad.is_sparse
    torch.testing.assert_close(found.to_dense(), dense.embed.weight.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("make", [Inside, Before])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad])
def test_optimizers_touch_the_rows_alone(make: type, optimizer: type[torch.optim.Optimizer]) -> None:
    (g, word), model = batch(), make(sparse=True)
    before = copy.deepcopy(model.embed.weight.detach())
    steps = optimizer(model.embed.parameters(), lr=0.1)  # type: ignore[call-arg]
    losses = []
    for _ in range(5):
        loss = (model(g, word=word)["h"] ** 2).sum()
        steps.zero_grad()
        loss.backward()
        with torch.sparse.check_sparse_tensor_invariants():
            steps.step()
        losses.append(loss.item())
    moved = (model.embed.weight.detach() != before).any(1).nonzero().squeeze(1)
    leaves = (g.in_degrees() == 0).nonzero().squeeze(1)
    used = word if make is Inside else word[leaves]
    assert set(moved.tolist()) <= set(used.tolist()) and len(moved) and losses[-1] < losses[0]
