"""Making graphs, asking them, cutting them up."""

import tempfile

import dgl
import torch

u, v = torch.tensor([0, 0, 0, 1, 2, 4]), torch.tensor([1, 2, 3, 3, 3, 0])
g = dgl.graph((u, v), num_nodes=6)
g.ndata["x"] = torch.arange(12.0).view(6, 2)
g.edata["w"] = torch.linspace(0, 1, 6)
print(g.num_nodes(), g.num_edges(), g.in_degrees().tolist(), g.out_degrees().tolist())
print(g.has_edges_between([0, 3], [1, 0]).tolist(), g.edge_ids([0, 4], [3, 0]).tolist())
both = dgl.to_bidirected(g, copy_ndata=True)
print([end.tolist() for end in both.edges()], both.ndata["x"].sum().item())
part = dgl.node_subgraph(g, [0, 3, 4])
print([end.tolist() for end in part.edges()], part.ndata[dgl.NID].tolist(), part.edata["w"].tolist())
g.add_nodes(1, {"x": torch.ones(1, 2)})
g.add_edges([6, 6], [0, 1], {"w": torch.tensor([0.5, 0.25])})
g.remove_edges([0])
print(g.num_nodes(), [end.tolist() for end in g.edges()], g.edata["w"].tolist())
with g.local_scope():
    g.ndata["x"] = g.ndata["x"] * 0
print(g.ndata["x"].sum().item())
with tempfile.TemporaryDirectory() as folder:
    dgl.save_graphs(folder + "/g.bin", [g, both], {"label": torch.tensor([3, 4])})
    (first, second), labels = dgl.load_graphs(folder + "/g.bin")
print(first.num_edges(), second.num_edges(), labels["label"].tolist())
print([step.tolist() for step in dgl.bfs_nodes_generator(both, 4)])
for block_of in (torch.tensor([3]), torch.tensor([0, 1])):
    block = dgl.to_block(dgl.in_subgraph(both, block_of), block_of)
    print(block.srcdata[dgl.NID].tolist(), block.dstdata[dgl.NID].tolist(), block.num_edges())
