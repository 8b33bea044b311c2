"""A program as users of DistDGL write it: ``torchrun --nproc-per-node 2 -m vgraph.compat dist_dgl_program.py FOLDER``.

It trains GraphSAGE on minibatches, evaluates layer by layer over all nodes, and draws neighbours by hand.
"""

from __future__ import annotations

import sys

import dgl  # type: ignore[import-not-found]
import dgl.nn.pytorch as dglnn  # type: ignore[import-not-found]
import numpy as np
import torch as th
from torch import nn
from torch.nn import functional as F


class DistSAGE(nn.Module):
    def __init__(self, in_feats, n_hidden, n_classes):
        super().__init__()
        self.layers = nn.ModuleList(
            [dglnn.SAGEConv(in_feats, n_hidden, "mean"), dglnn.SAGEConv(n_hidden, n_classes, "mean")]
        )

    def forward(self, blocks, x):
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            x = F.relu(x) if i == 0 else x
        return x

    def inference(self, g, x, batch_size):
        nodes = dgl.distributed.node_split(np.arange(g.num_nodes()), g.get_partition_book(), force_even=True)
        for i, layer in enumerate(self.layers):
            y = dgl.distributed.DistTensor((g.num_nodes(), layer._out_feats), th.float32, f"h{i}", persistent=True)
            sampler = dgl.dataloading.NeighborSampler([-1])
            loader = dgl.dataloading.DistNodeDataLoader(
                g, nodes, sampler, batch_size=batch_size, shuffle=False, drop_last=False
            )
            for input_nodes, output_nodes, blocks in loader:
                h = layer(blocks[0], x[input_nodes])
                y[output_nodes] = (F.relu(h) if i == 0 else h).detach()
            g.barrier()
            x = y
        return x


def divide(folder):
    th.manual_seed(0)
    u, v = th.randint(0, 60, (2, 400))
    g = dgl.add_self_loop(dgl.graph((u, v), num_nodes=60))
    g.ndata["labels"] = th.arange(60) % 3
    g.ndata["features"] = F.one_hot(g.ndata["labels"], 3).float() + 0.1 * th.randn(60, 3)
    g.ndata["train_mask"] = th.arange(60) % 2 == 0
    g.ndata["val_mask"] = th.arange(60) % 2 == 1
    g.edata["weight"] = th.arange(g.num_edges()).float()
    dgl.distributed.partition_graph(
        g, "drawn", 2, folder, part_method="random", balance_ntypes=g.ndata["train_mask"], balance_edges=True
    )


def by_hand(g, nodes):
    """The loop of programs from before there was DistNodeDataLoader."""

    def sample_blocks(seeds):
        frontier = dgl.distributed.sample_neighbors(g, th.tensor(seeds), 4, replace=False)
        block = dgl.to_block(frontier, th.tensor(seeds))
        block.srcdata["features"] = g.ndata["features"][block.srcdata[dgl.NID]]
        return block

    loader = dgl.distributed.DistDataLoader(
        dataset=nodes.numpy(), batch_size=7, collate_fn=sample_blocks, shuffle=True, drop_last=False
    )
    return [block.num_dst_nodes() for block in loader]


def embeddings(rank):
    """Rows that both processes use, and rows of each."""
    emb = dgl.nn.NodeEmbedding(6, 2, "rows", init_func=lambda rows: rows.fill_(1.0))
    optimizer = dgl.optim.SparseAdam([emb], lr=0.1)
    optimizer.zero_grad()
    emb(th.tensor([rank, 2, 5])).sum().backward()
    optimizer.step()
    assert th.allclose(emb.all_get_embedding()[:, 0], th.tensor([0.9, 0.9, 0.9, 1, 1, 0.9])), emb.weight
    emb.all_set_embedding(th.full((6, 2), 3.0))
    assert emb(th.tensor([4])).tolist() == [[3, 3]]
    once = dgl.multiprocessing.call_once_and_share(lambda: th.arange(4) + 10 * rank, (4,), th.int64, rank=1)
    assert once.tolist() == [10, 11, 12, 13]


def main(folder):
    dgl.distributed.initialize("ip_config.txt", num_workers=0)
    th.distributed.init_process_group(backend="gloo")
    rank = th.distributed.get_rank()
    embeddings(rank)
    if rank == 0:
        divide(folder)
    th.distributed.barrier()
    g = dgl.distributed.DistGraph("drawn", part_config=f"{folder}/drawn.json")
    book = g.get_partition_book()
    assert g.rank() == rank == book.partid and book.num_partitions() == th.distributed.get_world_size()
    train_nid = dgl.distributed.node_split(g.ndata["train_mask"], book, force_even=True)
    labels = g.ndata["labels"][np.arange(g.num_nodes())]
    n_classes = len(th.unique(labels))

    th.manual_seed(1)
    sampler = dgl.dataloading.MultiLayerNeighborSampler([5, 5])
    dataloader = dgl.dataloading.DistNodeDataLoader(g, train_nid, sampler, batch_size=5, shuffle=True, drop_last=False)
    model = DistSAGE(g.ndata["features"].shape[1], 16, n_classes)
    parallel = th.nn.parallel.DistributedDataParallel(model)
    optimizer = th.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(8):
        for input_nodes, seeds, blocks in dataloader:
            batch_inputs = g.ndata["features"][input_nodes]
            batch_labels = g.ndata["labels"][seeds].long()
            loss = F.cross_entropy(parallel(blocks, batch_inputs), batch_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    pred = model.inference(g, g.ndata["features"], 10)
    val_nid = dgl.distributed.node_split(g.ndata["val_mask"], book, force_even=True)
    right = (pred[val_nid].argmax(1) == g.ndata["labels"][val_nid]).float().sum()
    th.distributed.all_reduce(right)
    print(
        f"{rank}: {len(train_nid)} train, {by_hand(g, train_nid)} by hand, {right.item():.0f} of 30 right", flush=True
    )
    dgl.distributed.exit_client()


if __name__ == "__main__":
    main(sys.argv[1])
