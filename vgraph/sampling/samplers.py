"""Samplers: what a model of several layers needs in order to compute some vertices.

Takes: a graph and ids. Gives: input ids, output ids, blocks or a subgraph. Runs at every step.
Source: Hamilton et al. 2017, algorithm 2; Zeng et al. 2021, section 3 (ShaDow).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, checked
from vgraph.errors import DTypeError, FunctionError, GraphError
from vgraph.graphs.draw.neighbors import (
    NOTHING,
    ByType,
    Drawn,
    Fanout,
    Hop,
    Hops,
    edge_frame,
    follow,
    without,
)
from vgraph.graphs.draw.pick import renumber_all
from vgraph.graphs.draw.random_numbers import Array
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.graphs.lazy_columns import gathered
from vgraph.graphs.mutation import ID
from vgraph.graphs.types import Device, Edges, EdgeType, Nodes
from vgraph.ir.halo import EdgesElsewhere
from vgraph.ir.topology import Topology
from vgraph.sampling.given import FEATURES, PREFETCHED, check_direction, known_device, one_a_layer

Names = Sequence[str] | Mapping[str, Sequence[str]] | Mapping[EdgeType, Sequence[str]] | None
IdsByType = Tensor | dict[str, Tensor]  # by type where there are several
Minibatch = tuple[IdsByType, IdsByType, list[Graph]]
Key = TypeVar("Key", str, EdgeType)


class Sampler:
    """What a loader calls: ``sample(g, indices)`` gives a minibatch. Made to be subclassed.

    Raises:
        FunctionError: a subclass has no ``sample`` of its own.

    Source: DGL 1.1, ``dgl.dataloading.Sampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import DataLoader, Sampler
        >>> class Induced(Sampler):
        ...     def sample(self, g, indices):
        ...         return vgraph.node_subgraph(g, indices)
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 3]))
        >>> [part.num_edges() for part in DataLoader(g, [0, 1, 2, 3], Induced(), batch_size=2)]
        [1, 1]
    """

    def sample(self, g: Graph, indices: Any) -> Any:
        """A minibatch for some ids; to be written by subclasses.

        Args:
            g: the graph that is drawn from.
            indices: ids (k,), of vertices or edges, by type where there are several.

        Returns:
            Whatever the subclass gives.

        Raises:
            FunctionError: a subclass has no ``sample`` of its own.
        """
        raise FunctionError(f"{type(self).__name__} has no method sample", cure="define sample(self, g, indices)")


class BlockSampler(Sampler):
    """Calls ``sample_blocks`` and copies the features that were asked for into the blocks.

    Args:
        prefetch_node_feats: names of features (by type) that go to the sources of the first block; None: none.
        prefetch_labels: names of features (by type) that go to the destinations of the last block; None: none.
        prefetch_edge_feats: names of features (by edge type) that go to the edges of all blocks; None: none.
        output_device: where ids, blocks and features are moved to; None: they stay on the CPU.

    Raises:
        FunctionError: a subclass has no ``sample_blocks`` of its own.
        NameLookupError: a feature that was asked for is not in the graph.

    Source: DGL 1.1, ``dgl.dataloading.BlockSampler``.

    Example:
        >>> from vgraph.sampling import BlockSampler, NeighborSampler
        >>> isinstance(NeighborSampler([5, 5]), BlockSampler)
        True
    """

    @checked(**PREFETCHED)
    def __init__(
        self,
        prefetch_node_feats: Names = None,
        prefetch_labels: Names = None,
        prefetch_edge_feats: Names = None,
        output_device: Device = None,
    ) -> None:
        self.prefetch_node_feats, self.prefetch_labels = prefetch_node_feats or (), prefetch_labels or ()
        self.prefetch_edge_feats, self.output_device = prefetch_edge_feats or (), known_device(output_device)

    def sample_blocks(self, g: Graph, seed_nodes: Nodes, exclude_eids: Edges | None = None) -> Minibatch:
        """The blocks for some vertices, without features; to be written by subclasses.

        Args:
            g: a graph on the CPU.
            seed_nodes: ids (k,), by type where there are several.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Returns:
            Input ids, output ids (both by type where there are several) and a list of blocks, the first layer's
            first.

        Raises:
            FunctionError: a subclass has no ``sample_blocks`` of its own.
        """
        raise FunctionError(
            f"{type(self).__name__} has no method sample_blocks", cure="define sample_blocks(self, g, seed_nodes)"
        )

    @checked(g=GRAPH)
    def sample(self, g: Graph, indices: Nodes, exclude_eids: Edges | None = None) -> Minibatch:
        """A minibatch for some vertices: as ``sample_blocks``, with features in the blocks.

        Args:
            g: a graph on the CPU.
            indices: ids (k,), by type where there are several.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Returns:
            Input ids, output ids (both by type where there are several) and a list of blocks, the first layer's
            first.

        Raises:
            FunctionError: a subclass has no ``sample_blocks`` of its own.
            GraphError: an id is out of range, a seed is given twice, a fanout is no whole number from -1 up, or the
                graph is not on the CPU.
            NameLookupError: there is no such type or feature.
        """
        made = self.sample_blocks(g, indices, exclude_eids)
        for want in self.wants(g, made[2]):
            want.take_from(g)
        return self.moved(made)

    def wants(self, g: Graph, blocks: list[Graph]) -> list[Want]:
        """The features that were asked for, in the order in which they are filled in.

        Args:
            g: a graph on the CPU.
            blocks: the blocks of a minibatch.

        Returns:
            A list of frames with the type and the name of what goes into them.

        Raises:
            NameLookupError: there is no such type or feature.
        """
        if not blocks:  # of a model without layers
            return []
        sides = ((blocks[0].src_frames, self.prefetch_node_feats), (blocks[-1].dst_frames, self.prefetch_labels))
        found = [Want(frames[t], t, name) for frames, names in sides for t, name in listed(names, g.ntypes)]
        for block in blocks:
            found += wanted_of_edges(g, block, self.prefetch_edge_feats)
        return found

    def moved(self, made: Minibatch) -> Minibatch:
        """A minibatch on the output device.

        Args:
            made: what ``sample_blocks`` gave.

        Returns:
            The same where there is no output device; else ids and blocks moved.
        """
        if self.output_device is None:
            return made
        device = self.output_device
        return _moved(made[0], device), _moved(made[1], device), [block.to(device) for block in made[2]]


@dataclass(frozen=True)
class Want:
    """A feature to be filled into a frame of a part: its rows are those that the frame's ids name in the whole.

    ``kind``: a type of nodes, or of edges (a triple).
    """

    frame: Frame
    kind: str | EdgeType
    name: str

    @property
    def ids(self) -> Tensor:
        """The rows' ids in the whole."""
        return self.frame[ID].long()

    def take_from(self, g: Graph) -> None:
        """Fills in the rows of a graph in memory."""
        whole = g.src_frames[self.kind] if isinstance(self.kind, str) else g.edge_frames[self.kind]
        self.frame[self.name] = gathered(whole[self.name], self.ids)


def wanted_of(g: Graph, part: Graph, of_nodes: Names, of_edges: Names) -> list[Want]:
    """Features (by type) of a part's nodes and edges."""
    found = [Want(part.src_frames[t], t, name) for t, name in listed(of_nodes or (), g.ntypes)]
    return found + wanted_of_edges(g, part, of_edges)


def wanted_of_edges(g: Graph, part: Graph, names: Names) -> list[Want]:
    """Features (by edge type) of a part's edges."""
    named = [(g.to_canonical_etype(etype), name) for etype, name in listed(names or (), g.canonical_etypes)]
    return [Want(part.edge_frames[etype], etype, name) for etype, name in named]


def _moved(ids: IdsByType, device: torch.device | str | int) -> IdsByType:
    return ids.to(device) if isinstance(ids, Tensor) else {k: v.to(device) for k, v in ids.items()}


def listed(names: Any, types: Sequence[Key]) -> list[tuple[Key, str]]:
    """(type, name) of every feature that is named."""
    by_type = names if isinstance(names, Mapping) else {types[0]: names}
    return [(key, name) for key, some in by_type.items() for name in some]


class NeighborSampler(BlockSampler):
    """Draws for every layer up to so many in-edges of each vertex, anew.

    The same vertices get other edges in other layers; the feature ``"_ID"`` of blocks holds ids in the whole. Without
    ``replace`` a vertex with fewer edges gets all it has.

    Args:
        fanouts: one number a layer, or numbers by edge type, the first layer's first; -1: all.
        edge_dir: must be "in".
        prob: the name of a feature of edges, (edges,), that they are drawn in proportion to; None: all alike.
        mask: the name of a boolean feature; only edges where it is true are drawn. Not beside ``prob``. None: all may
            be.
        replace: let an edge be drawn twice.
        prefetch_node_feats: names of features (by type) that go to the sources of the first block; None: none.
        prefetch_labels: names of features (by type) that go to the destinations of the last block; None: none.
        prefetch_edge_feats: names of features (by edge type) that go to the edges of all blocks; None: none.
        output_device: where ids, blocks and features are moved to; None: they stay on the CPU.
        fused: ignored, as drawing and numbering anew are always one pass.

    Raises:
        FunctionError: ``edge_dir`` is not "in"; both ``prob`` and ``mask``; one fanout that is no list.
        DTypeError: ``mask`` names fractions, when the sampler is used.

    Source: Hamilton et al. 2017, algorithm 2; DGL 1.1, ``dgl.dataloading.NeighborSampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import NeighborSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> inputs, outputs, blocks = NeighborSampler([2, 2]).sample(g, [3])
        >>> outputs.tolist(), [block.num_dst_nodes() for block in blocks], blocks[1].num_edges()
        ([3], [3, 1], 2)
    """

    @checked()
    def __init__(
        self,
        fanouts: Sequence[Fanout],
        edge_dir: str = "in",
        prob: str | None = None,
        mask: str | None = None,
        replace: bool = False,
        prefetch_node_feats: Names = None,
        prefetch_labels: Names = None,
        prefetch_edge_feats: Names = None,
        output_device: Device = None,
        fused: bool = True,
    ) -> None:
        super().__init__(prefetch_node_feats, prefetch_labels, prefetch_edge_feats, output_device)
        check_direction(edge_dir)
        if prob is not None and mask is not None:
            raise FunctionError("both prob and mask are given", cure="multiply them into one feature")
        self.fanouts, self.prob, self.replace = one_a_layer(fanouts), prob if mask is None else mask, replace
        self._mask = mask

    @checked(g=GRAPH)
    def sample_blocks(self, g: Graph, seed_nodes: Nodes, exclude_eids: Edges | None = None) -> Minibatch:
        """The blocks for some vertices, without features.

        Args:
            g: a graph on the CPU.
            seed_nodes: ids (k,), by type where there are several, each once.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Returns:
            Input ids, output ids (both by type where there are several) and a list of blocks, the first layer's
            first.

        Raises:
            GraphError: an id is out of range, a seed is given twice, a fanout is no whole number from -1 up, or the
                graph is not on the CPU.
            NameLookupError: there is no such type or feature.
            DTypeError: the mask is of fractions.
        """
        return follow(g, self.hops(g, seed_nodes, exclude_eids))

    def hops(self, g: Graph, seed_nodes: Nodes, exclude_eids: Edges | None = None) -> Hops[Minibatch]:
        """What ``sample_blocks`` does, layer by layer, of edges that may be drawn elsewhere.

        Args:
            g: a graph that tells types and counts.
            seed_nodes: ids (k,), by type where there are several, each once.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Yields:
            For every layer, the last first, what is to be drawn; it is sent the edges, and returns what
            ``sample_blocks`` does.

        Raises:
            GraphError: an id is out of range, a seed is given twice, a fanout is no whole number from -1 up, or the
                graph is not on the CPU.
            NameLookupError: there is no such type or feature.
            DTypeError: the mask is of fractions.
        """
        seeds = nodes_by_type(g, seed_nodes)
        _check_mask(g, self._mask)
        needed, blocks = seeds, list[Graph]()
        for fanout in reversed(self.fanouts):
            drawn = yield Hop(needed, fanout, self.prob, self.replace)
            needed, block = make_block(g, needed, without(g, drawn, exclude_eids))
            blocks.insert(0, block)
        return as_given(g, needed), as_given(g, seeds), blocks


def _check_mask(g: Graph, mask: str | None) -> None:
    """DTypeError: a feature is no mask of edges, but numbers that they would be drawn in proportion to."""
    for frame in g.edge_frames.values():
        if mask is not None and mask in frame and frame[mask].is_floating_point():
            fact = f"the mask {mask!r} has dtype {frame[mask].dtype}"
            raise DTypeError(fact, cure=f"pass prob={mask!r} to draw edges in proportion to it, or give truth values")


class MultiLayerFullNeighborSampler(NeighborSampler):
    """All in-edges for every layer.

    Args:
        num_layers: how many blocks.
        **kwargs: all but ``fanouts`` that ``NeighborSampler`` takes.

    Raises:
        ArgumentError: ``num_layers`` is no whole number from 0 up.
        FunctionError: as in ``NeighborSampler``.

    Source: DGL 1.1, ``dgl.dataloading.MultiLayerFullNeighborSampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import MultiLayerFullNeighborSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> MultiLayerFullNeighborSampler(1).sample(g, [3])[2][0].num_edges()
        3
    """

    @checked(num_layers=COUNT)
    def __init__(self, num_layers: int, **kwargs: Any) -> None:
        super().__init__([-1] * num_layers, **kwargs)


class ShaDowKHopSampler(Sampler):
    """The subgraph of some vertices and what is drawn around them, for a model of any depth.

    Args:
        fanouts: one number a hop, or numbers by edge type, the last hop's first; -1: all.
        replace: let an edge be drawn twice.
        prob: the name of a feature of edges, (edges,), that they are drawn in proportion to; None: all alike.
        prefetch_node_feats: names of features (by type) that the subgraph's vertices get; None: none.
        prefetch_edge_feats: names of features (by edge type) that the subgraph's edges get; None: none.
        output_device: where ids, blocks and features are moved to; None: they stay on the CPU.

    Raises:
        NameLookupError: an unknown type or feature.
        GraphError: an id out of range, or a fanout that is no whole number from -1 up.
        FunctionError: one fanout that is no list.

    Source: Zeng et al. 2021, section 3.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import ShaDowKHopSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> everything, seeds, part = ShaDowKHopSampler([2]).sample(g, [3])
        >>> len(everything), everything[0].item(), part.num_nodes()
        (3, 3, 3)
    """

    @checked(prefetch_node_feats=FEATURES, prefetch_edge_feats=FEATURES)
    def __init__(
        self,
        fanouts: Sequence[Fanout],
        replace: bool = False,
        prob: str | None = None,
        prefetch_node_feats: Names = None,
        prefetch_edge_feats: Names = None,
        output_device: Device = None,
    ) -> None:
        self.fanouts, self.replace, self.prob = one_a_layer(fanouts), replace, prob
        self.output_device = known_device(output_device)
        self.prefetch_node_feats, self.prefetch_edge_feats = prefetch_node_feats or (), prefetch_edge_feats or ()

    @checked(g=GRAPH)
    def sample(self, g: Graph, indices: Nodes, exclude_eids: Edges | None = None) -> tuple[IdsByType, IdsByType, Graph]:
        """A minibatch for some vertices.

        Args:
            g: a graph on the CPU.
            indices: ids (k,), by type where there are several.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Returns:
            All ids, the ids given (both by type where there are several), and the subgraph: the ids come first in it,
            and its edges are all those of ``g`` between its vertices.

        Raises:
            GraphError: an id is out of range, a fanout is no whole number from -1 up, or the graph is not on the CPU.
            NameLookupError: there is no such type or feature.
        """
        made = follow(g, self.hops(g, indices, exclude_eids))
        for want in self.wants(g, made[2]):
            want.take_from(g)
        return self.moved(made)

    def hops(
        self, g: Graph, indices: Nodes, exclude_eids: Edges | None = None
    ) -> Hops[tuple[IdsByType, IdsByType, Graph]]:
        """What ``sample`` does, hop by hop, of edges that may be drawn elsewhere.

        Args:
            g: a graph that tells types and counts.
            indices: ids (k,), by type where there are several.
            exclude_eids: ids (by edge type) of edges that are taken out of what is drawn; None: none are.

        Yields:
            For every hop, the last first, what is to be drawn; it is sent the edges, and returns ids and the
            subgraph.

        Raises:
            GraphError: an id is out of range, or a fanout is no whole number from -1 up.
            NameLookupError: there is no such type or feature.
        """
        seeds = nodes_by_type(g, indices)
        reached = {name: seeds[name].long().numpy() for name in seeds}
        for fanout in reversed(self.fanouts):
            given = {name: torch.from_numpy(ids) for name, ids in reached.items()}
            drawn = yield Hop(given, fanout, self.prob, self.replace)
            reached = _with_sources(g, reached, without(g, drawn, exclude_eids))
        every = {name: reached.get(name, np.empty(0, np.int64)) for name in g.ntypes}
        around = yield Hop({name: torch.from_numpy(ids) for name, ids in every.items()}, -1)
        part = _induced(g, every, without(g, around, exclude_eids))
        ids = {name: torch.from_numpy(found) for name, found in reached.items()}
        return as_given(g, ids), as_given(g, seeds), part

    def wants(self, g: Graph, part: Graph) -> list[Want]:
        """The features that were asked for, in the order in which they are filled in.

        Args:
            g: a graph on the CPU.
            part: the subgraph of a minibatch.

        Returns:
            A list of frames with the type and the name of what goes into them.

        Raises:
            NameLookupError: there is no such type or feature.
        """
        return wanted_of(g, part, self.prefetch_node_feats, self.prefetch_edge_feats)

    def moved(self, made: tuple[IdsByType, IdsByType, Graph]) -> tuple[IdsByType, IdsByType, Graph]:
        """A minibatch on the output device.

        Args:
            made: all ids, the ids given, and the subgraph.

        Returns:
            The same where there is no output device; else moved.
        """
        if self.output_device is None:
            return made
        device = self.output_device
        return _moved(made[0], device), _moved(made[1], device), made[2].to(device)


def as_given(g: Graph, ids: ByType) -> IdsByType:
    """Ids as users write them: of the graph's dtype, without a type where there is one only."""
    found = {name: some.to(g.idtype) for name, some in ids.items()}
    if len(g.ntypes) != 1:
        return found
    return found[g.ntypes[0]] if found else torch.empty(0, dtype=g.idtype, device=g.device)


def _with_sources(g: Graph, seeds: Mapping[str, Array], drawn: Mapping[EdgeType, Drawn]) -> dict[str, Array]:
    """Seeds first, then where the drawn edges begin, as they are first seen."""
    found: dict[str, Array] = {}
    for name in dict.fromkeys([*seeds, *(etype[0] for etype in drawn)]):
        own = [seeds[name]] if name in seeds else []
        found[name] = renumber_all([*own, *(d.src for t, d in drawn.items() if t[0] == name)], g.num_nodes(name))[0]
    return found


def make_block(g: Graph, seeds: ByType, drawn: Mapping[EdgeType, Drawn]) -> tuple[dict[str, Tensor], Graph]:
    """The sources' ids by type, and the block of drawn edges whose destinations are the seeds.

    Raises:
        GraphError: a seed is given twice.
    """
    own = {name: seeds[name].long().numpy() if name in seeds else np.empty(0, np.int64) for name in g.ntypes}
    ids: dict[str, Array] = {}
    local: dict[EdgeType, Array] = {}
    for name in g.ntypes:
        etypes = [etype for etype in drawn if etype[0] == name]
        ids[name], places = renumber_all([own[name], *(drawn[etype].src for etype in etypes)], g.num_nodes(name))
        if not np.array_equal(ids[name][: len(own[name])], own[name]):
            raise GraphError("a node is given twice as a seed", cure="give every id once: torch.unique(ids)")
        bounds = np.cumsum([len(own[name]), *(len(drawn[etype].src) for etype in etypes)])
        local.update(zip(etypes, np.split(places, bounds)[1:-1], strict=True))
    topologies: dict[EdgeType, Topology] = {}
    edges: dict[EdgeType, Frame] = {}
    for etype in g.canonical_etypes:
        mine = drawn.get(etype, NOTHING)
        ends = (local.get(etype, NOTHING.src), mine.seed_places)
        near, far = (torch.from_numpy(end).to(g.idtype) for end in ends)
        made = topologies[etype] = _part_of(g, etype, (near, far), (len(ids[etype[0]]), len(own[etype[2]])))
        if mine.ptr is not None:
            made.keep_in_lists(torch.from_numpy(mine.ptr))
        edges[etype] = edge_frame(g.edge_frames[etype], mine, g.idtype, copies=True)
    src, dst = ({name: _side(g, name, part[name]) for name in g.ntypes} for part in (ids, own))
    return {name: torch.from_numpy(ids[name]) for name in g.ntypes}, type(g).of_types(topologies, src, dst, edges)


def _part_of(g: Graph, etype: EdgeType, ends: tuple[Tensor, Tensor], sizes: tuple[int, int]) -> Topology:
    """Some edges of a graph; where other processes draw from it, too, they may have some where there are none here."""
    is_alone = len(ends[0]) > 0 or g.relation(etype)[0].halo is None
    return Topology(*ends, *sizes, halo=None if is_alone else EdgesElsewhere(sizes[0]))


def _side(g: Graph, name: str, ids: Array) -> Frame:
    """The features of some nodes, which are gathered when they are read, and their ids."""
    given = torch.from_numpy(ids)
    frame = g.src_frames[name].lazily(given)
    frame[ID] = given.to(g.idtype)
    return frame


def _induced(g: Graph, every: Mapping[str, Array], drawn: Mapping[EdgeType, Drawn]) -> Graph:
    """All edges between some vertices, of all in-edges of these."""
    topologies: dict[EdgeType, Topology] = {}
    edges: dict[EdgeType, Frame] = {}
    for etype in g.canonical_etypes:
        mine, own = drawn[etype], every[etype[0]]
        local = renumber_all([own, mine.src], g.num_nodes(etype[0]))[1][len(own) :]
        is_inside = local < len(own)
        src, dst = (torch.from_numpy(end[is_inside]).to(g.idtype) for end in (local, mine.seed_places))
        topologies[etype] = _part_of(g, etype, (src, dst), (len(own), len(every[etype[2]])))
        edges[etype] = edge_frame(g.edge_frames[etype], mine.where(is_inside), g.idtype, copies=True)
    return type(g).of_types(topologies, {name: _side(g, name, ids) for name, ids in every.items()}, None, edges)
