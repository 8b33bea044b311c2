"""R-GCN: which molecules change genes, from what an RDF graph says about them and all else.

    python examples/rgcn_mutag.py FOLDER [--seeds 10]     MUTAG: mutag_stripped.nt.gz, trainingSet.tsv, testSet.tsv
    python examples/rgcn_mutag.py --smoke                 a few epochs on made-up molecules

Vertices have no features: the first layer learns a vector for each vertex and relation, as sums of 30
bases; the second maps by relation. A vertex's own row is one more relation, as in the published code.
Source: Schlichtkrull et al. 2018, section 5.1 (16 hidden, 30 bases, l2 5e-4, learning rate 0.01, 50 epochs).
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph.data import RdfTask, load_rdf, load_rdf_task
from vgraph.nn import RelGraphConv, RelGraphEmbedding

FILES = "mutag_stripped.nt.gz", "trainingSet.tsv", "testSet.tsv"


@dataclass(frozen=True)
class Problem:
    """One graph of all types, the type and the factor of every edge, and who is to be classified."""

    graph: vgraph.Graph
    etypes: Tensor
    norm: Tensor
    num_rels: int
    task: RdfTask


def load(graph_path: Path, train: Path, test: Path) -> Problem:
    data = load_rdf(graph_path)
    task = load_rdf_task(data, train, test, entity="bond", label="label_mutagenic")
    g = vgraph.to_homogeneous(data.graph)  # entities come first, so that their ids stay
    num_rels = len(data.graph.canonical_etypes) + 1
    count = g.num_nodes()
    etypes = torch.cat([g.edata[vgraph.ETYPE], torch.full((count,), num_rels - 1)])
    g.add_edges(torch.arange(count), torch.arange(count))
    # a message weighs 1 over how many its destination gets by the same relation
    arrivals = etypes * count + g.edges()[1]
    _, group, sizes = torch.unique(arrivals, return_inverse=True, return_counts=True)
    return Problem(g, etypes, (1 / sizes[group].float()).unsqueeze(1), num_rels, task)


class RGCN(nn.Module):
    def __init__(self, num_nodes: int, num_rels: int, num_classes: int, hidden: int = 16, num_bases: int = 30) -> None:
        super().__init__()
        self.first = RelGraphEmbedding(num_nodes, hidden, num_rels, num_bases)
        self.second = RelGraphConv(hidden, num_classes, num_rels, "basis", num_bases, self_loop=False)

    def forward(self, problem: Problem) -> Tensor:
        h = torch.relu(self.first(problem.graph, problem.etypes, problem.norm))
        return self.second(problem.graph, h, problem.etypes, problem.norm)


def train(problem: Problem, seed: int, epochs: int) -> float:
    """Accuracy on test, in percent, after the last epoch."""
    torch.manual_seed(seed)
    task = problem.task
    model = RGCN(problem.graph.num_nodes(), problem.num_rels, task.num_classes)
    # fused: the default would make several copies of the first layer's 11 million numbers
    groups = [{"params": model.first.parameters(), "weight_decay": 5e-4}, {"params": model.second.parameters()}]
    optimizer = torch.optim.Adam(groups, lr=0.01, fused=True)
    for _ in tqdm(range(epochs), desc=f"seed {seed}", unit="epoch", disable=None, leave=False):
        loss = F.cross_entropy(model(problem)[task.train_ids], task.train_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        is_right = model(problem)[task.test_ids].argmax(1) == task.test_labels
    return 100 * float(is_right.double().mean())


def write_molecules(folder: Path, count: int = 60) -> tuple[Path, Path, Path]:
    """Molecules of some atoms each, in files like MUTAG's; those with chlorine change genes."""
    draw = random.Random(0)
    triples: list[str] = []
    labels: list[tuple[str, int]] = []
    for i in range(count):
        elements = [draw.choice("CHON") for _ in range(6)] + (["Cl"] if i % 2 else [])
        labels.append((f"x#d{i}", i % 2))
        for j, element in enumerate(elements):
            triples.append(f"<x#d{i}> <x#hasAtom> <x#d{i}_{j}> .")
            triples.append(f"<x#d{i}_{j}> <x#type> <x#{element}> .")
            triples.append(f'<x#d{i}_{j}> <x#charge> "0.{draw.randrange(9)}" .')
    paths = folder / "molecules.nt", folder / FILES[1], folder / FILES[2]
    paths[0].write_text("\n".join(triples))
    for path, part in zip(paths[1:], (labels[: count // 2], labels[count // 2 :]), strict=True):
        path.write_text("bond\tlabel_mutagenic\n" + "\n".join(f"{name}\t{label}" for name, label in part))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("folder", type=Path, nargs="?", help=f"where {', '.join(FILES)} lie")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="ten epochs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder: Path | None = arguments.folder
        problem = load(*(write_molecules(Path(made)) if folder is None else [folder / name for name in FILES]))
    task = problem.task
    print(f"{problem.graph.num_nodes()} nodes, {problem.graph.num_edges()} edges of {problem.num_rels} relations")
    found: list[float] = []
    for seed in range(arguments.seeds):
        found.append(train(problem, seed, 10 if arguments.smoke else arguments.epochs))
        print(f"seed {seed}: {found[-1]:.1f} %", flush=True)
    spread = f" +- {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    commonest = 100 * float((task.test_labels == task.train_labels.mode().values).double().mean())
    print(
        f"test accuracy {statistics.mean(found):.1f} %{spread} of {len(task.test_ids)} (commonest: {commonest:.1f} %)"
    )


if __name__ == "__main__":
    main()
