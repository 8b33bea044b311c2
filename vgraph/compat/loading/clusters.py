"""Clusters: minibatches of the parts into which METIS divides a graph.

Takes: a graph, parts. Gives: subgraphs. Runs once per graph, and at every step.
Source: Chiang et al. 2019 (Cluster-GCN).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import vgraph
from vgraph.atomic_file import atomic_file
from vgraph.compat.partition import metis_partition_assignment
from vgraph.errors import DataError
from vgraph.files import read_arrays
from vgraph.graphs.subgraph import gathering_lazily
from vgraph.graphs.types import Device
from vgraph.sampling import Sampler
from vgraph.sampling.samplers import wanted_of


class ClusterGCNSampler(Sampler):
    """Minibatches of parts: the subgraph of all nodes of some parts, of which METIS makes ``k`` at the first time.

    The parts are kept in a file of NumPy's (``cache_path``), and taken from there later. Features are gathered when
    they are read, those of ``prefetch_ndata`` and ``prefetch_edata`` ahead.
    """

    def __init__(
        self,
        g: vgraph.Graph,
        k: int,
        cache_path: str | Path = "cluster_gcn.pkl",
        balance_ntypes: Tensor | Sequence[int] | None = None,
        balance_edges: bool = False,
        mode: str = "k-way",
        prefetch_ndata: Sequence[str] | None = None,
        prefetch_edata: Sequence[str] | None = None,
        output_device: Device = None,
    ) -> None:
        self.output_device, self.prefetch_ndata, self.prefetch_edata = output_device, prefetch_ndata, prefetch_edata
        if Path(cache_path).exists():
            self.partition_offset, self.partition_node_ids = _kept(cache_path, k, g.num_nodes())
            return
        parts = metis_partition_assignment(g, k, balance_ntypes, balance_edges, mode)
        self.partition_node_ids = parts.argsort(stable=True)
        self.partition_offset = torch.cat([torch.zeros(1).long(), parts.bincount(minlength=k).cumsum(0)])
        with atomic_file(cache_path) as file:
            np.savez(file, offset=self.partition_offset.numpy(), node_ids=self.partition_node_ids.numpy())

    def sample(self, g: vgraph.Graph, indices: Tensor) -> vgraph.Graph:
        """The subgraph of the nodes of some parts, which are named by number."""
        offsets = self.partition_offset.tolist()
        own = [self.partition_node_ids[offsets[i] : offsets[i + 1]] for i in indices.tolist()]
        part = gathering_lazily(g).subgraph(torch.cat(own).to(g.idtype))
        for want in wanted_of(g, part, self.prefetch_ndata, self.prefetch_edata):
            want.take_from(g)
        return part if self.output_device is None else part.to(self.output_device)


def _kept(path: str | Path, k: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    cure = f"remove {path}, or pass another cache_path"
    try:
        arrays = read_arrays(path)
    except DataError as error:
        raise DataError(f"{path} holds no parts that vgraph has kept ({error.fact})", cure=cure) from error
    offset, ids = (torch.from_numpy(np.asarray(arrays.get(name, []), np.int64)) for name in ("offset", "node_ids"))
    if len(offset) != k + 1 or len(ids) != num_nodes:
        fact = f"{path} has {len(offset) - 1} parts of {len(ids)} nodes, where {k} of {num_nodes} are needed"
        raise DataError(fact, cure=cure)
    if offset[0] != 0 or offset[-1] != num_nodes or bool((offset.diff() < 0).any()):
        raise DataError(f"{path} has parts that do not follow one another", cure=cure)
    if not torch.equal(ids.sort().values, torch.arange(num_nodes)):
        raise DataError(f"{path} has parts that do not hold each node once", cure=cure)
    return offset, ids
