"""A Tree-LSTM in messages: all trees of a batch, level by level."""

import dgl
import torch
from torch import nn

torch.manual_seed(0)


class TreeLSTMCell(nn.Module):
    def __init__(self, x_size, h_size):
        super().__init__()
        self.W_iou = nn.Linear(x_size, 3 * h_size, bias=False)
        self.U_iou = nn.Linear(h_size, 3 * h_size, bias=False)
        self.b_iou = nn.Parameter(torch.zeros(1, 3 * h_size))
        self.U_f = nn.Linear(h_size, h_size)

    def message_func(self, edges):
        return {"h": edges.src["h"], "c": edges.src["c"]}

    def reduce_func(self, nodes):
        h_tild = torch.sum(nodes.mailbox["h"], 1)
        f = torch.sigmoid(self.U_f(nodes.mailbox["h"]))
        return {"iou": self.U_iou(h_tild), "c": torch.sum(f * nodes.mailbox["c"], 1)}

    def apply_node_func(self, nodes):
        iou = nodes.data["iou"] + self.b_iou
        i, o, u = torch.chunk(iou, 3, 1)
        i, o, u = torch.sigmoid(i), torch.sigmoid(o), torch.tanh(u)
        c = i * u + nodes.data["c"]
        return {"h": o * torch.tanh(c), "c": c}


def tree(leaves):
    src, dst, roots, count = [], [], list(range(leaves)), leaves
    while len(roots) > 1:
        src += roots[:2]
        dst += [count, count]
        roots, count = [*roots[2:], count], count + 1
    return dgl.graph((src, dst))


cell, embedding, out = TreeLSTMCell(4, 6), nn.Embedding(10, 4), nn.Linear(6, 2)
graph = dgl.batch([tree(n) for n in (3, 5, 8)])
words = torch.arange(graph.num_nodes()) % 10
mask = (graph.in_degrees() == 0).float()
n = graph.num_nodes()
graph.ndata["iou"] = cell.W_iou(embedding(words)) * mask.unsqueeze(-1)
graph.ndata["h"], graph.ndata["c"] = torch.zeros(n, 6), torch.zeros(n, 6)
dgl.prop_nodes_topo(graph, cell.message_func, cell.reduce_func, apply_node_func=cell.apply_node_func)
logits = out(graph.ndata.pop("h"))
loss = nn.functional.cross_entropy(logits, words % 2)
loss.backward()
print([len(step) for step in dgl.topological_nodes_generator(graph)])
print(f"{loss.item():.5f} {logits.sum().item():.4f}")
for name, parameter in [*cell.named_parameters(), *embedding.named_parameters()]:
    print(name, f"{parameter.grad.norm().item():.5f}")
