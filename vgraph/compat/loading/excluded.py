"""Edges that messages must not go along while they are predicted.

Takes: edges of a minibatch. Gives: ids of edges. Runs at every step.
Source: Zhu et al. 2024 (SpotTarget); DGL 1.1, ``dgl.dataloading``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

import vgraph
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.ids_by_type import edge_ids_by_type
from vgraph.graphs.types import Device, Edges, EdgeType, Ids
from vgraph.sampling import EdgePredictionSampler, NeighborSampler
from vgraph.sampling.edges import Exclude

Reverse = Ids | Mapping[str, Ids] | Mapping[EdgeType, Ids] | None
ReverseTypes = Mapping[str, str] | Mapping[EdgeType, EdgeType] | None


def find_exclude_eids(
    g: vgraph.Graph,
    seed_edges: Edges,
    exclude: str | Exclude | None,
    reverse_eids: Reverse = None,
    reverse_etypes: ReverseTypes = None,
    output_device: Device = None,
) -> Edges | None:
    """Ids (by type where there are several) that ``exclude`` means, as ``as_edge_prediction_sampler`` has it."""
    sampler = EdgePredictionSampler(NeighborSampler([]), exclude, reverse_eids, reverse_etypes)
    found = sampler.excluded(g, edge_ids_by_type(g, seed_edges))
    if isinstance(found, Mapping):
        device = output_device or g.device
        moved = {g.to_canonical_etype(key): torch.as_tensor(ids).to(device) for key, ids in found.items()}
        return moved if isinstance(seed_edges, Mapping) else moved[g.canonical_etypes[0]]
    return found if found is None or output_device is None else torch.as_tensor(found).to(output_device)


class SpotTarget:
    """Leaves out those edges of a minibatch of which an end has few in-edges: called with edges, it gives ids.

    ``degree_threshold``: an end has few below so many.
    """

    def __init__(
        self,
        g: vgraph.Graph,
        exclude: str | Exclude | None,
        degree_threshold: int = 10,
        reverse_eids: Reverse = None,
        reverse_etypes: ReverseTypes = None,
    ) -> None:
        self.g, self.exclude, self.degree_threshold = g, exclude, degree_threshold
        self.reverse_eids, self.reverse_etypes = reverse_eids, reverse_etypes

    def __call__(self, seed_edges: Ids) -> Edges | None:
        """Ids of edges that are left out."""
        ids = resolve_ids(seed_edges, self.g.num_edges(), self.g.device, "edge")
        least = torch.minimum(*(torch.as_tensor(self.g.in_degrees(end)) for end in self.g.find_edges(ids)))
        chosen = ids[least < self.degree_threshold]
        return find_exclude_eids(self.g, chosen, self.exclude, self.reverse_eids, self.reverse_etypes)
