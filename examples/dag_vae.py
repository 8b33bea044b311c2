"""A DAG-VAE: networks of layers as codes, from which they are written again layer by layer.

    python examples/dag_vae.py [--smoke]

A cell is a DAG of layers of a few kinds, as a search for architectures draws them: each reads the layer before it and
perhaps some earlier ones. The encoder is a vertex function along the wires, whose last state becomes a code with
noise. The decoder goes along the wires, too: from the states so far it chooses the next layer's kind and what that
reads. In training the cell is known, and the decoder runs over a whole batch at once; to write cells ``vgraph.grow``
keeps the states of layers that are there, so that a step costs its new layers alone. Source: Zhang et al. 2019 (D-VAE).
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph

LAYERS = 6  # of a cell, its input and output among them
INPUT, OUTPUT, KINDS = 4, 5, 6  # kinds 0 to 3 are what layers do


class AlongWires(vgraph.VertexFunction):
    """A gated unit: a layer's state from its own features and, by gates, from the layers that it reads."""

    def __init__(self, size: int) -> None:
        super().__init__(states={"h": size})
        self.gate, self.value = nn.Linear(size, size), nn.Linear(size, size, bias=False)
        self.unit = nn.GRUCell(size, size)

    def forward(self, v: vgraph.Vertex) -> None:
        read = v.gather()["h"]
        h = self.unit(v.pull("x"), (torch.sigmoid(self.gate(read)) * self.value(read)).sum())
        v.scatter(h=h)
        v.push(h=h)


class DagVae(nn.Module):
    def __init__(self, size: int, code: int) -> None:
        super().__init__()
        self.kinds, self.places = nn.Embedding(KINDS, size), nn.Embedding(LAYERS, size)
        self.encoder, self.decoder = AlongWires(size), AlongWires(size)
        self.mean, self.spread = nn.Linear(size, code), nn.Linear(size, code)
        self.read_code = nn.Linear(code, size)
        self.kind = nn.Sequential(nn.Linear(2 * size, size), nn.Tanh(), nn.Linear(size, KINDS))
        self.reader, self.read = nn.Linear(3 * size, size), nn.Linear(size, size)
        self.wire = nn.Linear(size, 1)

    def see(self, kinds: Tensor, places: Tensor) -> Tensor:
        return self.kinds(kinds) + self.places(places)

    def encode(self, g: vgraph.Graph) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each cell's code."""
        h = self.encoder(g, x=self.see(g.ndata["kind"], g.ndata["place"]))["h"]
        last = vgraph.rows_at(h, torch.arange(LAYERS - 1, len(h), LAYERS))
        return self.mean(last), self.spread(last)

    def next_kind(self, h: Tensor, z: Tensor) -> Tensor:
        """(..., kinds): what comes behind the layer whose state is ``h``."""
        return self.kind(torch.cat([h, z], -1))

    def wires(self, before: Tensor, h: Tensor, kind: Tensor, z: Tensor) -> Tensor:
        """(..., layers): whether a layer of this kind behind the state ``h`` reads each of the layers ``before``."""
        reader = self.reader(torch.cat([h, self.kinds(kind), z], -1))
        return self.wire(torch.tanh(self.read(before) + reader.unsqueeze(-2))).squeeze(-1)

    def loss(self, g: vgraph.Graph, kinds: Tensor, reads: Tensor) -> Tensor:
        mean, spread = self.encode(g)
        code = mean + torch.exp(spread / 2) * torch.randn_like(mean)
        z = self.read_code(code).unsqueeze(1).expand(-1, LAYERS, -1)
        x = self.see(g.ndata["kind"], g.ndata["place"]) + z.flatten(0, 1)
        h = self.decoder(g, x=x)["h"].view(len(kinds), LAYERS, -1)
        behind, z = h[:, :-1], z[:, 1:]
        found = self.next_kind(behind, z)
        wires = self.wires(h.unsqueeze(1), behind, kinds[:, 1:], z)
        earlier = torch.ones(LAYERS, LAYERS).tril(-1)[1:].bool()
        divergence = (mean.square() + spread.exp() - spread - 1).sum(1).mean() / 2
        told = F.binary_cross_entropy_with_logits(wires[:, earlier], reads[:, 1:][:, earlier].float())
        return F.cross_entropy(found.flatten(0, 1), kinds[:, 1:].flatten()) + told + 0.001 * divergence

    def decode(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Kinds (cells, layers) and wires (cells, layers, layers) that the decoder writes, one layer a step."""
        z, count = self.read_code(code), len(code)
        growing, cells = vgraph.grow(self.decoder, num_graphs=count), torch.arange(count)
        kinds = torch.full((count, LAYERS), INPUT)
        reads = torch.zeros(count, LAYERS, LAYERS, dtype=torch.bool)
        states: list[Tensor] = []
        for place in range(LAYERS):
            if place:
                kinds[:, place] = self.next_kind(states[-1], z).argmax(-1)
                wires = self.wires(torch.stack(states, 1), states[-1], kinds[:, place], z)
                reads[:, place, :place] = wires > 0
            cell, earlier = reads[:, place].nonzero().T
            x = self.see(kinds[:, place], torch.full((count,), place)) + z
            edges = (earlier * count + cell, place * count + cell)  # a step adds one layer to each cell
            states.append(growing.add_nodes(count, edges, graph_ids=cells, x=x)["h"])
        return kinds, reads


def draw(count: int) -> tuple[Tensor, Tensor]:
    """Kinds and wires of random cells."""
    kinds = torch.randint(4, (count, LAYERS))
    kinds[:, 0], kinds[:, -1] = INPUT, OUTPUT
    reads = (torch.rand(count, LAYERS, LAYERS) < 0.3).tril(-2)
    reads[:, -1] = False
    return kinds, reads | torch.eye(LAYERS, dtype=torch.bool).roll(1, 0).tril()


def unseen(kinds: Tensor, reads: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Random cells that are not among those given; ``count`` are drawn."""
    known = {*map(bytes, torch.cat([kinds, reads.flatten(1)], 1).byte().numpy())}
    kinds, reads = draw(count)
    rows = torch.cat([kinds, reads.flatten(1)], 1).byte().numpy()
    new = torch.tensor([bytes(row) not in known for row in rows])
    return kinds[new], reads[new]


def graph(kinds: Tensor, reads: Tensor) -> vgraph.Graph:
    reader, read = reads.nonzero().T
    g = vgraph.graph((read, reader), num_nodes=LAYERS)
    g.ndata["kind"], g.ndata["place"] = kinds, torch.arange(LAYERS)
    return g


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    steps, count, size = (3, 40, 8) if options.smoke else (options.steps, 8000, 64)
    torch.manual_seed(0)
    kinds, reads = draw(count)
    cells = vgraph.unbatch(vgraph.batch([graph(*one) for one in zip(kinds, reads, strict=True)]))
    model = DagVae(size, code=size // 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for step in trange(steps, disable=None, leave=False):
        ids = torch.randint(count, (64,))
        loss = model.loss(vgraph.batch([cells[i] for i in ids]), kinds[ids], reads[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 4) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    kinds, reads = unseen(kinds, reads, count // 4)
    with torch.no_grad():
        mean, _ = model.encode(vgraph.batch([graph(*one) for one in zip(kinds, reads, strict=True)]))
        found, wires = model.decode(mean)
    whole = ((found == kinds).all(1) & (wires == reads).flatten(1).all(1)).float().mean()
    layers, told = (found == kinds).float().mean(), (wires == reads).float().mean()
    print(f"of {len(kinds)} unseen cells {100 * whole:.1f} % come back from their codes without a fault")
    print(f"layers {100 * layers:.1f} %, wires {100 * told:.1f} %")


if __name__ == "__main__":
    main()
