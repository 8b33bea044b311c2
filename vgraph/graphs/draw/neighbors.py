"""Neighbours: the lists of in-edges (or out-edges) of some vertices, whole or drawn from.

Takes: a graph, vertices, how many edges each. Gives: edges, graphs. Runs at every step.
Source: Hamilton et al. 2017, algorithm 2; DGL section 3 (sampling).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.arguments import checked
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.graphs.draw.grouped import lists_of
from vgraph.graphs.draw.lists import Lists
from vgraph.graphs.draw.pick import FROM_0, are_weights, draw_uniform, pick_weighted, scaled_by_list
from vgraph.graphs.draw.random_numbers import Array, mix, next_key
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.ids_by_type import edge_ids_by_type, nodes_by_type
from vgraph.graphs.lazy_columns import Late
from vgraph.graphs.mutation import ID
from vgraph.graphs.subgraph import take
from vgraph.graphs.types import Device, Edges, EdgeType, Nodes
from vgraph.ir.topology import Compressed, Topology

ByType = Mapping[str, Tensor]
Fanout = int | Mapping[str, int] | Mapping[EdgeType, int]
Made = TypeVar("Made")


@dataclass(frozen=True)
class IdsAt:
    """The ids of the edges at some places of lists, which are read when they are asked for."""

    lists: Lists
    places: Array

    def read(self) -> Array:
        """The ids, int64."""
        return self.lists.edge_ids(self.places)

    def tensor(self) -> Tensor:
        """The same as a tensor."""
        return torch.from_numpy(self.read())


@dataclass(frozen=True)
class Drawn:
    """Edges of one type that were drawn for ``seeds``: their other ends, by ids in the whole, and which seed's each is.

    ``is_in``: they lead to the seeds. ``ptr`` (seeds + 1): where each seed's edges begin; None: not known.
    """

    seeds: Array
    seed_places: Array
    far: Array
    given_ids: Array | IdsAt
    is_in: bool = True
    ptr: Array | None = None

    @property
    def src(self) -> Array:
        return self.far if self.is_in else self.near

    @property
    def dst(self) -> Array:
        return self.near if self.is_in else self.far

    @cached_property
    def near(self) -> Array:
        """The seed of every edge."""
        return self.seeds[self.seed_places]

    @cached_property
    def edge_ids(self) -> Array:
        return self.given_ids.read() if isinstance(self.given_ids, IdsAt) else self.given_ids

    def where(self, stays: NDArray[np.bool_]) -> Drawn:
        """Some of the edges."""
        return Drawn(self.seeds, self.seed_places[stays], self.far[stays], self.edge_ids[stays], self.is_in)


_NONE = np.empty(0, np.int64)
NOTHING = Drawn(_NONE, _NONE, _NONE, _NONE)


def fanouts_of(g: GraphData, fanout: Fanout, name: str = "the fanout") -> dict[EdgeType, int]:
    """How many edges of every type; GraphError: no whole number from -1 up."""
    found: dict[EdgeType, object] = dict.fromkeys(g.canonical_etypes, 0 if isinstance(fanout, Mapping) else fanout)
    if isinstance(fanout, Mapping):
        found.update({g.to_canonical_etype(key): value for key, value in fanout.items()})
    return {key: whole_fanout(value, name) for key, value in found.items()}


def whole_fanout(fanout: object, name: str = "the fanout") -> int:
    """A number of edges a node, of any library; GraphError: no whole number from -1 up."""
    if isinstance(fanout, (int, float, np.number, Tensor)) and not isinstance(fanout, bool):
        is_real = not isinstance(fanout, Tensor) or (fanout.numel() == 1 and not fanout.is_complex())
        number = float(fanout) if is_real else math.nan
        if -1 <= number < 2**63 and number.is_integer():
            return int(number)
    raise GraphError(f"{name} is {fanout!r}", cure="pass how many edges a node, or -1 for all")


@dataclass(frozen=True)
class Hop:
    """What a sampler asks for: up to ``fanout`` in-edges of each seed. ``prob`` names what they are drawn by.

    It is made where the keys of its batch are, and may be answered elsewhere.
    """

    seeds: ByType
    fanout: Fanout
    prob: str | None = None
    replace: bool = False
    key: int = field(default_factory=next_key)

    def key_of(self, number: int) -> int:
        """The key for the edge type of this number."""
        return mix(self.key + number & (1 << 64) - 1)


# A sampler that yields what it asks for, is sent what was drawn, and returns what it made of that.
Hops: TypeAlias = Generator[Hop, dict[EdgeType, Drawn], Made]


def follow(g: GraphData, hops: Hops[Made]) -> Made:
    """What a sampler makes of edges that are drawn from this graph."""
    try:
        hop = next(hops)
        while True:
            hop = hops.send(draw_edges(g, hop))
    except StopIteration as end:
        return end.value


@dataclass(frozen=True)
class Seeds:
    """Vertices whose lists of one type of edges are drawn from, and how many of each; ``number``: of that type."""

    number: int
    etype: EdgeType
    lists: Lists
    frame: Frame
    ids: Array
    fanout: int
    is_in: bool

    @property
    def far_type(self) -> str:
        """The type of the vertices at the other ends."""
        return self.etype[0 if self.is_in else 2]

    def drawn(self, far: Array, edge_ids: Array, seed_places: Array) -> Drawn:
        """Edges to (from) other ends, as the graph directs them."""
        return Drawn(self.ids, seed_places, far, edge_ids, self.is_in)


def seeds_by_type(g: GraphData, seeds: ByType, fanout: Fanout, edge_dir: str) -> Iterator[Seeds]:
    """What edges of every type are drawn of that end (begin) in some vertices."""
    if edge_dir not in ("in", "out"):
        raise FunctionError(f"edge_dir is {edge_dir!r}", cure='pass "in" or "out"')
    if g.device.type != "cpu":
        raise GraphError(f"the graph is on {g.device}", cure="sample from g.cpu(), and move what is drawn")
    counts = fanouts_of(g, fanout)
    for number, etype in enumerate(g.canonical_etypes):
        mine = seeds.get(etype[2 if edge_dir == "in" else 0])
        if mine is not None and counts[etype]:
            topology, _, _, frame = g.relation(etype)
            lists = lists_of(topology, of_in_edges=edge_dir == "in")
            yield Seeds(number, etype, lists, frame, mine.long().numpy(), counts[etype], edge_dir == "in")


def draw_edges(g: GraphData, hop: Hop, edge_dir: str = "in") -> dict[EdgeType, Drawn]:
    """Edges of every type that end (begin) in the seeds."""
    found: dict[EdgeType, Drawn] = {}
    for mine in seeds_by_type(g, hop.seeds, hop.fanout, edge_dir):
        prob = feature_of(g, hop.prob, mine)
        weights = None if prob is None else weights_at(mine.frame, prob, mine.lists)
        key = hop.key_of(mine.number)
        far, places, seed_places, ptr = _drawn(mine.lists, weights, mine.ids, mine.fanout, key, replace=hop.replace)
        found[mine.etype] = Drawn(mine.ids, seed_places, far, IdsAt(mine.lists, places), mine.is_in, ptr)
    return found


def feature_of(g: GraphData, prob: str | None, seeds: Seeds) -> str | None:
    """The feature that edges of a type are drawn by; None, all alike, where only other types have it."""
    is_elsewhere = prob not in seeds.frame and any(prob in frame for frame in g.edge_frames.values())
    return None if is_elsewhere else prob


def draw_from(
    lists: Lists, weights: Callable[[Array], Array] | None, ids: Array, fanout: int, key: int, *, replace: bool
) -> tuple[Array, Array, Array]:
    """(other ends, edge ids, which of ``ids`` each was drawn for); ``weights``: those at some places."""
    far, places, seed_places, _ = _drawn(lists, weights, ids, fanout, key, replace=replace)
    return far, lists.edge_ids(places), seed_places


def _drawn(
    lists: Lists, weights: Callable[[Array], Array] | None, ids: Array, fanout: int, key: int, *, replace: bool
) -> tuple[Array, Array, Array, Array | None]:
    """(other ends, places, which of ``ids`` each was drawn for, where each one's begin if that is known)."""
    spans = lists.spans(ids)
    if weights is None:
        far, places, seed_places, ptr = draw_uniform(lists, spans, fanout, key, replace=replace)
        return far, places, seed_places, ptr
    owners, slots = spans.entries
    places, seed_places = pick_weighted(spans, weights(spans.begins[owners] + slots), fanout, key, replace=replace)
    return lists.others(places), places, seed_places, None


def weights_at(frame: Frame, prob: str, lists: Lists) -> Callable[[Array], Array]:
    """What gives the feature at some places of the lists; FeatureError: not one number from 0 up an edge."""
    rows = _numbers_from_0(frame, prob).numpy(force=True)
    return lambda places: rows[lists.edge_ids(places)]


def weights_of(frame: Frame, prob: str, lists: Compressed) -> Array:
    """The feature in the lists' order, each list's on its scale; FeatureError: not one number from 0 up an edge."""
    rows = _numbers_from_0(frame, prob)
    own = (rows if lists.edge_ids is None else rows[lists.edge_ids]).numpy(force=True)
    return scaled_by_list(own, np.diff(lists.ptr.numpy()))


def _numbers_from_0(frame: Frame, prob: str) -> Tensor:
    rows = frame[prob]
    if rows.numel() != len(rows) or rows.is_complex():
        raise FeatureError(f"{prob!r} has shape {tuple(rows.shape)}", cure="give one number an edge")
    rows = rows.detach().reshape(-1).double()
    if not are_weights(rows):
        raise FeatureError(f"{prob!r} has numbers below 0, or that are not finite", cure=FROM_0)
    return rows


@checked(g=GRAPH)
def sample_neighbors(
    g: AnyGraph,
    nodes: Nodes,
    fanout: Fanout,
    edge_dir: str = "in",
    prob: str | None = None,
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    exclude_edges: Edges | None = None,
    output_device: Device = None,
) -> AnyGraph:
    """A graph of all nodes with up to ``fanout`` in-edges (out-edges) of each of ``nodes``.

    Args:
        g: a graph on the CPU.
        nodes: ids (nodes,), by type where there are several.
        fanout: how many edges of each type, or by edge type; -1: all.
        edge_dir: "in" for the edges that end in the nodes, "out" for those that begin there.
        prob: the name of a feature, (edges,), that edges are drawn in proportion to; 0: never. A boolean one is a
            mask. Edges of types that lack it are all alike, as with None.
        replace: let an edge be drawn more than once.
        copy_ndata: take the features of nodes along.
        copy_edata: take the features of edges along.
        exclude_edges: ids (by edge type) of edges that are taken out of what was drawn; None: none are.
        output_device: where the result goes; None: it stays on the CPU.

    Returns:
        A graph of the same class; its edges' feature ``"_ID"`` holds their ids in ``g``. Nodes with fewer edges get
        all they have.

    Raises:
        NameLookupError: there is no such type or feature, or ids have no type where there are several.
        GraphError: an id is out of range, the fanout is no whole number from -1 up, or the graph is not on the CPU.
        FeatureError: ``prob`` is not one number from 0 up an edge.
        FunctionError: ``edge_dir`` is not "in" or "out".

    Source: DGL 1.1, ``dgl.sampling.sample_neighbors``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import sample_neighbors
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> sample_neighbors(g, [3], 2).in_degrees().tolist()
        [0, 0, 0, 2]
    """
    drawn = draw_edges(g, Hop(nodes_by_type(g, nodes), fanout, prob, replace), edge_dir)
    return graph_of(g, without(g, drawn, exclude_edges), copy_ndata, copy_edata, output_device)


def graph_of(
    g: AnyGraph, drawn: Mapping[EdgeType, Drawn], copy_ndata: bool, copy_edata: bool, output_device: Device
) -> AnyGraph:
    """A graph of all nodes and the edges that were drawn, with features where they are copied."""
    topologies, edges = edges_by_type(g, drawn, copy_edata)
    frames = {name: frame.lazily() if copy_ndata else frame.empty() for name, frame in g.src_frames.items()}
    made = type(g).of_types(topologies, frames, None, edges)
    return made if output_device is None else made.to(output_device)


def edges_by_type(
    g: GraphData, drawn: Mapping[EdgeType, Drawn], copies: bool
) -> tuple[dict[EdgeType, Topology], dict[EdgeType, Frame]]:
    """Edges that were drawn among all vertices of a graph, of every type; ``copies``: with their features."""
    topologies: dict[EdgeType, Topology] = {}
    frames: dict[EdgeType, Frame] = {}
    for etype in g.canonical_etypes:
        whole, _, _, frame = g.relation(etype)
        mine = drawn.get(etype, NOTHING)
        src, dst = (torch.from_numpy(end).to(g.idtype) for end in (mine.src, mine.dst))
        topologies[etype] = Topology(src, dst, whole.num_src, whole.num_dst)
        frames[etype] = edge_frame(frame, mine, g.idtype, copies)
    return topologies, frames


def edge_frame(whole: Frame, drawn: Drawn, idtype: torch.dtype, copies: bool) -> Frame:
    """The features of some edges, which are gathered when they are read, and their ids, which are, too, if they can."""
    if isinstance(drawn.given_ids, IdsAt) and not (copies and whole.columns):
        frame = whole.rows_alone(len(drawn.far)).lazily()
        frame.later(ID, Late(drawn.given_ids.tensor, len(drawn.far), idtype))
        return frame
    ids = torch.from_numpy(drawn.edge_ids)
    frame = whole.lazily(ids) if copies else whole.rows_alone(len(ids))
    frame[ID] = ids.to(idtype)
    return frame


def without(g: GraphData, drawn: dict[EdgeType, Drawn], exclude: Edges | None) -> dict[EdgeType, Drawn]:
    """What was drawn less the edges of these ids (by type)."""
    taken = excluded_by_type(g, exclude)
    return {
        etype: one.where(~np.isin(one.edge_ids, taken[etype])) if etype in taken else one
        for etype, one in drawn.items()
    }


def excluded_by_type(g: GraphData, exclude: Edges | None) -> dict[EdgeType, Array]:
    """Ids of edges that are left out, by type; none of a type that is not named."""
    if exclude is None:
        return {}
    return {etype: ids.numpy() for etype, ids in edge_ids_by_type(g, exclude).items()}


@checked(g=GRAPH)
def select_topk(
    g: AnyGraph,
    k: Fanout,
    weight: str,
    nodes: Nodes | None = None,
    edge_dir: str = "in",
    ascending: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    output_device: Device = None,
) -> AnyGraph:
    """A graph of all nodes with the k heaviest (lightest) in-edges (out-edges) of each of ``nodes``, or of all.

    Args:
        g: a graph on the CPU.
        k: how many edges of each type a node, or numbers by edge type; -1: all.
        weight: the name of a feature of the edges, (edges,) or (edges, 1).
        nodes: ids (nodes,), by type where there are several; None: all.
        edge_dir: "in" for the edges that end in the nodes, "out" for those that begin there.
        ascending: choose the lightest.
        copy_ndata: take the features of nodes along.
        copy_edata: take the features of edges along.
        output_device: where the result goes; None: it stays on the CPU.

    Returns:
        A graph of the same class; its edges' feature ``"_ID"`` holds their ids in ``g``. Nodes with fewer edges get
        all they have. Edges stand node by node, the heaviest (lightest) of each first, equal ones by their ids.

    Raises:
        NameLookupError: an unknown type or feature.
        FeatureError: ``weight`` is not one number an edge.
        GraphError: ``k`` is below -1, an id is out of range, or the graph is not on the CPU.
        FunctionError: ``edge_dir`` is not "in" or "out".

    Source: DGL 1.1, ``dgl.sampling.select_topk``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.sampling import select_topk
        >>> g = vgraph.graph(([0, 1, 2], [3, 3, 3]))
        >>> g.edata["w"] = torch.tensor([0.3, 0.9, 0.5])
        >>> select_topk(g, 2, "w").edges()[0].tolist()
        [1, 2]
    """
    most = fanouts_of(g, k, "k")
    everything = {name: torch.arange(g.num_nodes(name), device="cpu") for name in g.ntypes} if nodes is None else nodes
    whole = sample_neighbors(g, everything, -1, edge_dir, copy_ndata=copy_ndata, copy_edata=True)
    chosen: dict[EdgeType, Tensor] = {}
    for etype in whole.canonical_etypes:
        topology, _, _, frame = whole.relation(etype)
        keys = _one_each(frame, weight) * (1 if ascending else -1)
        group = (topology.dst if edge_dir == "in" else topology.src).numpy()
        chosen[etype] = torch.from_numpy(_first_of_each(keys, group, most[etype]))
    whole = take(whole, {}, chosen, store_ids=False)
    for etype in whole.canonical_etypes if not copy_edata else ():
        for name in list(whole.edge_frames[etype]):
            if name != ID:
                del whole.edge_frames[etype][name]
    return whole if output_device is None else whole.to(output_device)


def _one_each(frame: Frame, name: str) -> NDArray[np.float64]:
    rows = frame[name]
    if rows.numel() != len(rows):
        raise FeatureError(f"{name!r} has shape {tuple(rows.shape)}", cure="give one number an edge")
    return rows.reshape(-1).double().numpy(force=True)


def _first_of_each(keys: NDArray[np.float64], group: Array, most: int) -> Array:
    """The elements of which fewer than ``most`` of their own group sort before them (-1: all), sorted group by group.

    The elements of a group stand together, and so they stay.
    """
    begins = np.diff(group, prepend=-1) != 0
    order = np.lexsort((keys, np.cumsum(begins)))
    ranks = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    return order if most < 0 else order[ranks < most]
