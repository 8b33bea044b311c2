"""Tree-FC: one layer over two children, on complete binary trees (Looks et al. 2017, section 3.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import vgraph
from recursion.division import stopwatch
from recursion.workload import INDUCTOR, Step, Workload, compiled, dynet_with_batches, forward_alone, training

WORDS = 1000


class TreeFC(vgraph.VertexFunction):
    def __init__(self, hidden: int) -> None:
        super().__init__(states={"h": hidden})
        self.W = nn.Linear(2 * hidden, hidden)

    def forward(self, v: vgraph.Vertex) -> None:
        both = torch.cat([v.gather(k, default=0.0)["h"] for k in range(2)], -1)
        h = torch.where((v.in_degree == 0).unsqueeze(-1), v.pull("x"), torch.tanh(self.W(both)))
        v.scatter(h=h)
        v.push(h=h)


def complete_tree(leaves: int) -> list[tuple[int, int] | None]:
    tree: list[tuple[int, int] | None] = [None] * leaves
    level = list(range(leaves))
    while len(level) > 1:
        made = []
        for left, right in zip(level[::2], level[1::2], strict=True):
            tree.append((left, right))
            made.append(len(tree) - 1)
        level = made
    return tree


def loss_of(model: TreeFC, g: vgraph.Graph, x: Tensor, leaves: Tensor, roots: Tensor) -> Tensor:
    return (vgraph.rows_at(model(g, x=vgraph.at(x, leaves))["h"], roots) ** 2).sum()


def tree_fc(leaves: int, hidden: int, batch: int, *, trains: bool = True, backend: str = INDUCTOR) -> Workload:
    torch.manual_seed(0)
    tree, model, embed = complete_tree(leaves), TreeFC(hidden), nn.Embedding(WORDS, hidden, sparse=True)  # as DyNet's
    edges = [(kid, v) for v, kids in enumerate(tree) if kids for kid in kids]
    graph = vgraph.graph(tuple(zip(*edges, strict=True)), num_nodes=len(tree))
    words = torch.randint(0, WORDS, (batch, leaves))
    roots = torch.arange(1, batch + 1) * len(tree) - 1
    places = (torch.arange(batch)[:, None] * len(tree) + torch.arange(leaves)).flatten()

    def by_vgraph() -> Tensor:
        return loss_of(model, vgraph.batch([graph] * batch), embed(words.flatten()), places, roots)

    def climb(h: Tensor) -> Tensor:
        while h.shape[1] > 1:
            h = torch.tanh(model.W(h.reshape(batch, h.shape[1] // 2, 2 * hidden)))
        return (h**2).sum()

    quick = compiled(climb, backend)  # all levels as one graph: their sizes never change
    parameters = [*model.parameters(), *embed.parameters()]
    losses = {
        "vgraph": by_vgraph,
        "level loop by hand": lambda: climb(embed(words)),
        "level loop, torch.compile": lambda: quick(embed(words)),
    }
    sides = {name: training(parameters, loss) if trains else forward_alone(loss) for name, loss in losses.items()}
    dynet = by_dynet(tree, words.numpy(), hidden, trains)
    if dynet is not None:
        sides["DyNet"] = dynet
    flops = 2 * 2 * hidden * hidden * batch * (leaves - 1) * (3 if trains else 1)
    return Workload(
        f"Tree-FC {'' if trains else 'inference '}{leaves} leaves hidden {hidden} batch {batch}",
        sides,
        flops,
        len(bin(leaves)) - 2,
    )


def by_dynet(tree: list[tuple[int, int] | None], words: np.ndarray, hidden: int, trains: bool) -> Step | None:
    dy = dynet_with_batches()
    if dy is None:
        return None
    model = dy.Model()
    trainer = dy.SimpleSGDTrainer(model, 1e-6)
    W, b = model.add_parameters((hidden, 2 * hidden)), model.add_parameters(hidden)
    E = model.add_lookup_parameters((WORDS, hidden))

    construction = [0.0]

    def built() -> Any:
        dy.renew_cg()
        losses = []
        for row in words:
            states = []
            for j, kids in enumerate(tree):
                if kids is None:
                    states.append(E[int(row[j])])
                else:
                    both = dy.concatenate([states[kids[0]], states[kids[1]]])
                    states.append(dy.tanh(dy.affine_transform([b, W, both])))
            losses.append(dy.squared_norm(states[-1]))
        return dy.esum(losses)

    def step() -> None:
        with stopwatch(construction):
            loss = built()
        loss.value()
        if trains:
            loss.backward()
            trainer.update()

    step.model = model  # type: ignore[attr-defined]  (the trainer does not keep it alive)
    step.construction = construction  # type: ignore[attr-defined]
    return step
