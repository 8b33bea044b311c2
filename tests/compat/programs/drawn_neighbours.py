"""Samplers and loaders of every kind; printed is what does not depend on what was drawn."""

import dgl
import torch
from torch import nn

torch.manual_seed(0)
users, movies = torch.arange(40) % 10, torch.arange(40) % 8
hg = dgl.heterograph({("user", "rates", "movie"): (users, movies), ("movie", "rated-by", "user"): (movies, users)})
hg.nodes["user"].data["x"], hg.nodes["movie"].data["x"] = torch.randn(10, 4), torch.randn(8, 4)
sampler = dgl.dataloading.MultiLayerNeighborSampler([2, 2])
loader = dgl.dataloading.DataLoader(
    hg, {"user": torch.arange(10)}, sampler, batch_size=4, shuffle=True, drop_last=False
)
print(sorted(len(output["user"]) for _, output, _ in loader))
given, _, blocks = next(iter(loader))
rows = {ntype: hg.nodes[ntype].data["x"][ids] for ntype, ids in given.items()}
print(sorted(rows), blocks[0].canonical_etypes, blocks[-1].num_dst_nodes("user"))

pairs = dgl.dataloading.as_edge_prediction_sampler(
    dgl.dataloading.NeighborSampler([3, 3]),
    exclude="reverse_types",
    reverse_etypes={"rates": "rated-by", "rated-by": "rates"},
    negative_sampler=dgl.dataloading.negative_sampler.Uniform(3),
)
for _, there, none, blocks in dgl.dataloading.DataLoader(hg, {"rates": torch.arange(40)}, pairs, batch_size=10):
    print(
        there.num_edges("rates"),
        none.num_edges("rates"),
        len(blocks),
        there.num_nodes("user") == none.num_nodes("user"),
    )

g = dgl.graph((torch.arange(60) % 20, (torch.arange(60) * 7 + 1) % 20))
g.ndata["feat"], g.ndata["label"] = torch.linspace(-2, 2, 80).view(20, 4).sin(), torch.arange(20) % 3
part = dgl.sampling.sample_neighbors(g, [1, 2], 2)
print(part.in_degrees()[[1, 2]], part.num_nodes(), dgl.EID in part.edata)
walks, edges, types = dgl.sampling.random_walk(g, [0, 1], length=3, return_eids=True)
print(walks.shape, edges.shape, types)
walks, types = dgl.sampling.random_walk(hg, [0, 1], metapath=["rates", "rated-by"])
print(types, dgl.sampling.pack_traces(walks, types)[2])
src, dst = dgl.sampling.global_uniform_negative_sampling(g, 10)
print(len(src), g.has_edges_between(src, dst).any())


class Induced(dgl.dataloading.Sampler):
    def sample(self, g, indices):
        return g.subgraph(indices)


class Whole(dgl.dataloading.BlockSampler):
    def sample_blocks(self, g, seed_nodes, exclude_eids=None):
        block = dgl.to_block(dgl.in_subgraph(g, seed_nodes), seed_nodes)
        return block.srcdata[dgl.NID], seed_nodes, [block]


print([part.num_nodes() for part in dgl.dataloading.DataLoader(g, torch.arange(20), Induced(), batch_size=8)])
print([b[0].num_edges() for _, _, b in dgl.dataloading.DataLoader(g, torch.arange(20), Whole(), batch_size=8)])

sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2, prefetch_node_feats=["feat"], prefetch_labels=["label"])
loader = dgl.dataloading.DataLoader(g, torch.arange(0, 20, 2), sampler, batch_size=4, shuffle=False, num_workers=0)
layers = nn.ModuleList([dgl.nn.SAGEConv(4, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")])
for i, parameter in enumerate(layers.parameters()):
    parameter.data = torch.linspace(-0.5, 0.5, parameter.numel()).roll(i).view(parameter.shape)
optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
for _ in range(2):
    for _, output, blocks in loader:
        h = blocks[0].srcdata["feat"]
        for i, (layer, block) in enumerate(zip(layers, blocks)):
            h = layer(block, (h, h[: block.num_dst_nodes()]))
            h = torch.relu(h) if i == 0 else h
        loss = nn.functional.cross_entropy(h, blocks[-1].dstdata["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(output.tolist(), f"{loss.item():.4f}")
