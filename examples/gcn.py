"""GCN: what a vertex is, from what it is joined to and a few labels.

    python examples/gcn.py cora.npz       topics of papers, from who cites whom (planetoid .npz)
    python examples/gcn.py                packages of the standard library's modules, from imports
    python examples/gcn.py --smoke        a few steps of the latter

A layer is one line of message passing: every vertex sums what its neighbours hold, each message
scaled by an edge's weight. Source: Kipf and Welling 2017; Wang et al. 2019 (DGL), section 3.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
import vgraph.function as fn
from vgraph.data import load_planetoid


class Convolution(nn.Module):
    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_size, out_size)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.linear(x)
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
            return g.ndata["h"]


class GCN(nn.Module):
    def __init__(self, in_size: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.second = Convolution(in_size, hidden), Convolution(hidden, num_classes)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        h = torch.relu(self.first(g, F.dropout(x, 0.5, self.training)))
        return self.second(g, F.dropout(h, 0.5, self.training))


def normalized(g: vgraph.Graph) -> vgraph.Graph:
    """With self-loops, and with edges weighted by the roots of the degrees at their ends."""
    g = vgraph.add_self_loop(g)
    g.ndata["d"] = g.in_degrees().float().rsqrt().unsqueeze(1)
    g.apply_edges(fn.u_mul_v("d", "d", "w"))
    return g


def load_imports() -> vgraph.Graph:
    """The modules of the standard library's largest packages, joined where one imports another.

    ``label`` is the package; a module's only feature is which module it is.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = {f"{path.parent.name}.{path.stem}": path for path in sorted(root.glob("*/*.py"))}
    sizes = Counter(name.partition(".")[0] for name in files)
    packages = [name for name, size in sizes.most_common() if size >= 12 and "test" not in name][:8]
    names = [name for name in files if name.partition(".")[0] in packages]
    number = {name: i for i, name in enumerate(names)}
    pairs: set[tuple[int, int]] = set()
    for name in names:
        for other in imports_of(files[name], name.partition(".")[0]) & set(names):
            pairs |= {(number[name], number[other]), (number[other], number[name])}
    src, dst = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2).unbind(1)
    g = vgraph.graph((src, dst), num_nodes=len(names))
    g.ndata["feat"] = torch.eye(len(names))
    g.ndata["label"] = torch.tensor([packages.index(name.partition(".")[0]) for name in names])
    return g


def imports_of(path: Path, package: str) -> set[str]:
    """Dotted names that a file imports, as ``package.module``."""
    found: set[str] = set()
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return found
    for item in ast.walk(module):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            parent = f"{package}.{item.module or ''}".rstrip(".") if item.level else item.module
            found |= {str(parent), *(f"{parent}.{alias.name}" for alias in item.names)}
    return found


def load(path: Path | None) -> tuple[vgraph.Graph, Tensor, Tensor, Tensor]:
    """The graph, and who is in train, val and test."""
    if path is not None:
        g = load_planetoid(path).graph
        return g, *(g.ndata[f"{name}_mask"] for name in ("train", "val", "test"))  # type: ignore[return-value]
    g = load_imports()
    drawn = torch.rand(g.num_nodes(), generator=torch.Generator().manual_seed(0))
    return g, drawn < 0.3, (drawn >= 0.3) & (drawn < 0.5), drawn >= 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("data", type=Path, nargs="?", help="cora.npz or citeseer.npz")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--smoke", action="store_true", help="ten epochs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    g, train, val, test = load(arguments.data)
    x, label = g.ndata["feat"], g.ndata["label"]
    g = normalized(g)
    model = GCN(x.shape[1], 16, int(label.max()) + 1)
    decayed = {"params": model.first.parameters(), "weight_decay": 5e-4}
    optimizer = torch.optim.Adam([decayed, {"params": model.second.parameters()}], lr=0.01)
    best, test_at_best = 0.0, 0.0
    epochs = 10 if arguments.smoke else arguments.epochs
    for epoch in tqdm(range(epochs), unit="epoch", disable=None, leave=False):
        model.train()
        loss = F.cross_entropy(model(g, x)[train], label[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            is_right = (model(g, x).argmax(1) == label).double() * 100
        if float(is_right[val].mean()) >= best:
            best, test_at_best = float(is_right[val].mean()), float(is_right[test].mean())
        if epoch == 0 or (epoch + 1) % max(1, epochs // 5) == 0:
            tqdm.write(f"epoch {epoch + 1}: loss {loss.item():.3f}, best val {best:.1f} %")
    commonest = 100 * float((label[test] == label[train].mode().values).double().mean())
    print(f"test accuracy {test_at_best:.1f} % (always the commonest: {commonest:.1f} %)")


if __name__ == "__main__":
    main()
