"""Tree-LSTM on several processes: batches of syntax trees, shared out by work, under DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/tree_lstm_ddp.py                    names the functions of Python's library
    torchrun --nproc-per-node 2 examples/tree_lstm_ddp.py --sst FOLDER       the sentiment of sentences
    python examples/tree_lstm_ddp.py --smoke                                 a few steps on one package, one process

A batch is the same set of trees on any number of processes, and so is the loss. What a vertex, an edge and a level cost
is measured first; then each process gets trees that keep it as busy as the others. Source: Tai et al. 2015.
"""

from __future__ import annotations

import argparse
import email
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import vgraph
import vgraph.distributed as vd
from vgraph.data import TreeDataset, TreeSplits, load_sst, load_syntax
from vgraph.nn import ChildSumTreeLSTM

Batch = tuple[vgraph.Graph, Tensor]


class Namer(nn.Module):
    """Tokens are embedded, the cell reads the tree, its root is classified."""

    def __init__(self, size: int, num_tokens: int, num_classes: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(num_tokens, size), ChildSumTreeLSTM(size, size)
        self.dropout, self.out = nn.Dropout(0.3), nn.Linear(size, num_classes)

    def forward(self, trees: vgraph.Graph) -> Tensor:
        h = self.cell(trees, x=self.dropout(self.embedding(trees.ndata["token"])))["h"]
        sizes = trees.batch_num_nodes()
        roots = sizes.cumsum(0) - sizes  # the first vertex of every tree
        return self.out(self.dropout(h[roots]))


def load(sst: Path | None, smoke: bool) -> TreeSplits:
    if sst is None:
        package = Path(email.__file__).parent if smoke else None  # None: the whole standard library
        return load_syntax(folder=package, num_classes=3 if smoke else 12)
    splits = load_sst(sst)
    for sample in (sample for part in splits for sample in part):
        sample.graph.ndata["token"] = sample.graph.ndata["word"].clamp(min=0)  # 0 where there is no word
    return splits


def samples_of(part: TreeDataset, count: int | None) -> list[Batch]:
    return [(sample.graph, torch.tensor(sample.label)) for sample in part[slice(count)]]


@torch.no_grad()
def accuracy(model: Namer, loader: vd.DistGraphLoader) -> float:
    """Of the trees of all processes."""
    model.eval()
    right = total = torch.zeros(())
    for trees, label in loader:
        weight = trees.gdata["_WEIGHT"]
        right = right + ((model(trees).argmax(1) == label) * weight).sum()
        total = total + weight.sum()
    both = torch.stack([right, total])
    dist.all_reduce(both)
    return 100 * float(both[0] / both[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst", type=Path, metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="trees of a batch, of all processes together")
    parser.add_argument("--smoke", action="store_true", help="a few steps")
    options = parser.parse_args()
    vd.init(timeout=300)
    torch.manual_seed(0)
    splits, size = load(options.sst, options.smoke), 16 if options.smoke else 128
    model = Namer(size, splits.train.num_tokens, splits.train.num_classes)
    few = 96 if options.smoke else None

    def measure(batch: Batch) -> None:
        F.cross_entropy(model(batch[0]), batch[1]).backward()

    train = vd.DistGraphLoader(samples_of(splits.train, few), options.batch, measure=measure)
    val = vd.DistGraphLoader(samples_of(splits.val, few), 256, shuffle=False) if len(splits.val) else None
    model.zero_grad()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2 if options.smoke else options.epochs):
        model.train()
        start, total = time.perf_counter(), 0.0
        for trees, label in tqdm(train, desc=f"epoch {epoch + 1}", disable=vd.rank() > 0 or None, leave=False):
            rows = F.cross_entropy(parallel(trees), label, reduction="none")
            loss = vd.mean(rows, trees.gdata["_WEIGHT"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        shown = f"val {accuracy(model, val):.1f} %" if val is not None else "no val"
        if vd.rank() == 0:
            took = time.perf_counter() - start
            print(f"epoch {epoch + 1}, loss {total / len(train):.3f}, {shown}, {took:.1f} s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
