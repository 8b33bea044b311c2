"""R-GCN on MUTAG's RDF graph beside DGL: an epoch of the model of examples/rgcn_mutag.py.

DGL computes it in two ways, each timed: its RelGraphConv on one graph whose edges are sorted by type, and
HeteroGraphConv with a GraphConv a relation. Sides take turns in processes of their own, begin with the same
parameters, step with the same optimizer (Adam, fused), and are stopped where their losses differ.

usage: relational.py [FOLDER] [--steps 20] [--threads N] [--peer-python PATH] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sides.alternate import NAMES, Settings, alternate
from sides.workloads import Workload

import vgraph
from vgraph.data import load_rdf, load_rdf_task, parse_ntriples

FORMS = ("RelGraphConv", "HeteroGraphConv")


def write(folder: Path, source: Path | None) -> tuple[int, int]:
    """Edges, types, factors and labels as arrays; the numbers of vertices and edges."""
    if source is None:  # smoke: a few triples
        data = parse_ntriples("".join(f"<a{i}> <r{i % 3}> <a{(i * i + 1) % 20}> .\n" for i in range(40)))
        ids, labels = torch.arange(6), torch.tensor([0, 1] * 3)
    else:
        data = load_rdf(source / "mutag_stripped.nt.gz")
        tables = (source / "trainingSet.tsv", source / "testSet.tsv")
        task = load_rdf_task(data, *tables, entity="bond", label="label_mutagenic")
        ids, labels = task.train_ids, task.train_labels
    g = vgraph.to_homogeneous(data.graph)
    count, loops = g.num_nodes(), torch.arange(g.num_nodes())
    etypes = torch.cat([g.edata[vgraph.ETYPE], torch.full((count,), len(data.graph.canonical_etypes))])
    src, dst = (torch.cat([end, loops]) for end in g.edges())
    _, group, sizes = torch.unique(etypes * count + dst, return_inverse=True, return_counts=True)
    arrays = {"src": src, "dst": dst, "etypes": etypes, "ids": ids, "labels": labels}
    arrays["norm"] = (1 / sizes[group].float()).unsqueeze(1)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.numpy())
    return count, len(src)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="MUTAG: mutag_stripped.nt.gz and its tables")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has DGL")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    sides, steps = (["vgraph"], 2) if options.smoke or options.folder is None else (["vgraph", "dgl"], options.steps)
    settings = Settings(options.threads, steps, warmup=2, peer_python=options.peer_python)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
        nodes, edges = write(Path(folder), options.folder)
        for form in FORMS[: len(sides)]:
            work = Workload("relational", nodes, edges, (16, 2), folder=folder, options={"form": form})
            found = alternate(work, sides, settings)
            results[form] = {side: one.as_json() for side, one in found.items()}
            for side, one in found.items():
                shown = one.problem or f"{1e3 * (one.median or 0):8.1f} ms an epoch, {one.growth / 2**30:.2f} GiB"
                print(f"beside {form}: {NAMES[side]:8s} {shown}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
