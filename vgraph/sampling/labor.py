"""LABOR: samplers that draw for all vertices of a layer by one number a source, and so need few sources.

Takes: a graph and ids. Gives: blocks, or a graph of what is drawn, and weights. Runs at every step.
Source: Balin and Catalyurek 2023.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import index

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, PART, WHOLE, checked
from vgraph.errors import GraphError
from vgraph.graphs.draw.labor import Labor, Variates, draw_labor
from vgraph.graphs.draw.neighbors import Fanout, graph_of
from vgraph.graphs.draw.random_numbers import MASK, batch_place, mix, next_key
from vgraph.graphs.given import GRAPH
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.graphs.types import Device, Edges, Nodes
from vgraph.sampling.given import check_direction, one_a_layer
from vgraph.sampling.samplers import BlockSampler, Minibatch, Names, as_given, make_block

WEIGHTS = "edge_weights"


@checked(g=GRAPH, importance_sampling=WHOLE, seed2_contribution=PART)
def sample_labors(
    g: Graph,
    nodes: Nodes,
    fanout: Fanout,
    edge_dir: str = "in",
    prob: str | None = None,
    importance_sampling: int = 0,
    random_seed: Tensor | int | None = None,
    seed2_contribution: float = 0,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    exclude_edges: Edges | None = None,
    output_device: Device = None,
) -> tuple[Graph, list[Tensor]]:
    """A graph of all nodes with about ``fanout`` in-edges (out-edges) of each of ``nodes``, from few other nodes.

    One number for every node that edges may come from decides about all of them. A mean over what is drawn varies as
    one over ``fanout`` edges drawn without replacement.

    Args:
        g: a graph on the CPU.
        nodes: ids (nodes,), by type where there are several.
        fanout: how many edges of each type a node is to have on average, or by edge type; -1: all.
        edge_dir: "in" for the edges that end in the nodes, "out" for those that begin there.
        prob: the name of a feature, (edges,), that edges are weighed by; None: all alike.
        importance_sampling: how often chances are improved to reach fewer nodes; negative: until that number settles.
        random_seed: one whole number, or two, that the nodes' numbers follow from; None: as ``vgraph.seed`` has it.
        seed2_contribution: from 0 up to 1, how far the numbers are on the way from the first seed's to the second's.
        copy_ndata: take the features of nodes along.
        copy_edata: take the features of edges along.
        exclude_edges: ids (by edge type) of edges that are not drawn; None: all may be.
        output_device: where the result goes; None: it stays on the CPU.

    Returns:
        A graph of the same class, whose edges' feature ``"_ID"`` holds their ids in ``g``, and for every type weights
        (edges,) for a mean over a node's edges: parts over chances; empty where chances are alike.

    Raises:
        ArgumentError: ``importance_sampling`` or ``seed2_contribution`` is no such number.
        NameLookupError: there is no such type or feature, or ids have no type where there are several.
        GraphError: an id is out of range, the fanout is no whole number from -1 up, or the graph is not on the CPU.
        FeatureError: ``prob`` is not one number from 0 up an edge.
        FunctionError: ``edge_dir`` is not "in" or "out".

    Source: Balin and Catalyurek 2023, sections 3 and 4; DGL 1.1, ``dgl.sampling.sample_labors``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import sample_labors
        >>> g = vgraph.graph(([0, 1, 2, 0, 1, 2], [3, 3, 3, 4, 4, 4]))
        >>> part, _ = sample_labors(g, [3, 4], 1, random_seed=0)
        >>> sources = part.in_edges([3])[0], part.in_edges([4])[0]
        >>> sources[0].equal(sources[1])
        True
    """
    labor = Labor(fanout, prob, importance_sampling, Variates(*_keys_of(random_seed), float(seed2_contribution)))
    drawn, weights = draw_labor(g, nodes, labor, edge_dir, exclude_edges)
    made = graph_of(g, drawn, copy_ndata, copy_edata, output_device)
    nothing = np.empty(0)
    return made, [torch.from_numpy(weights.get(etype, nothing)).float().to(made.device) for etype in g.canonical_etypes]


def _keys_of(seed: Tensor | int | None) -> tuple[int, int]:
    """Keys of the first and of the second numbers."""
    if seed is None:
        return next_key(), 0
    numbers = torch.as_tensor(seed, device="cpu").reshape(-1).tolist() if isinstance(seed, Tensor) else [seed]
    if not numbers or not all(map(WHOLE.accepts, numbers)):
        raise GraphError(f"random_seed is {seed!r}", cure="give a whole number, or a tensor of two")
    return mix(numbers[0] & MASK), mix(numbers[-1] & MASK)


class LaborSampler(BlockSampler):
    """Draws for every layer about so many in-edges of each vertex, by one number for every vertex they may come from.

    Vertices of a minibatch thus share sources: as many edges are drawn as by ``NeighborSampler``, from fewer vertices.
    Blocks have a feature of edges ``"edge_weights"``, for a mean over them, where chances of edges differ.

    Args:
        fanouts: one number a layer, or numbers by edge type, the first layer's first; -1: all.
        edge_dir: must be "in".
        prob: the name of a feature of edges, (edges,), that they are weighed by; None: all alike.
        importance_sampling: how many times chances are improved so that fewer vertices are needed; negative: until
            that number settles.
        layer_dependency: use the same numbers in all layers, so that layers share vertices, too.
        batch_dependency: within how many minibatches the numbers become wholly new, so that consecutive ones share
            vertices; 1: at once; 0: never.
        prefetch_node_feats: names of features (by type) that go to the sources of the first block; None: none.
        prefetch_labels: names of features (by type) that go to the destinations of the last block; None: none.
        prefetch_edge_feats: names of features (by edge type) that go to the edges of all blocks; None: none.
        output_device: where ids, blocks and features are moved to; None: they stay on the CPU.

    Raises:
        ArgumentError: ``importance_sampling`` or ``batch_dependency`` is no such number.
        FunctionError: ``edge_dir`` is not "in"; one fanout that is no list.

    Source: Balin and Catalyurek 2023; Balin, LaSalle and Catalyurek 2023, section 3.2 (``batch_dependency``); DGL 1.1,
        ``dgl.dataloading.LaborSampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import LaborSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> inputs, outputs, blocks = LaborSampler([-1, -1]).sample(g, [3])
        >>> outputs.tolist(), inputs.tolist(), blocks[1].num_edges()
        ([3], [3, 0, 1, 2], 3)
    """

    @checked(importance_sampling=WHOLE, batch_dependency=COUNT)
    def __init__(
        self,
        fanouts: Sequence[Fanout],
        edge_dir: str = "in",
        prob: str | None = None,
        importance_sampling: int = 0,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        prefetch_node_feats: Names = None,
        prefetch_labels: Names = None,
        prefetch_edge_feats: Names = None,
        output_device: Device = None,
    ) -> None:
        super().__init__(prefetch_node_feats, prefetch_labels, prefetch_edge_feats, output_device)
        check_direction(edge_dir)
        self.fanouts, self.edge_dir, self.prob = one_a_layer(fanouts), edge_dir, prob
        self.importance_sampling, self.layer_dependency = importance_sampling, layer_dependency
        self.batch_dependency = index(batch_dependency)
        self._lock = threading.Lock()
        self.set_seed()

    @checked(random_seed=WHOLE.or_none())
    def set_seed(self, random_seed: int | None = None) -> None:
        """What the numbers of all further minibatches follow from; samplers of one seed draw by the same numbers.

        Args:
            random_seed: a whole number; None: they follow from the loader's epoch again, or from ``vgraph.seed``.

        Raises:
            ArgumentError: it is none.
        """
        self._seed, self._count = random_seed, 0
        self._root: int | None = None  # of minibatches that no loader numbers

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @checked(g=GRAPH)
    def sample_blocks(self, g: Graph, seed_nodes: Nodes, exclude_eids: Edges | None = None) -> Minibatch:
        """The blocks for some vertices, without features but the weights of edges.

        Args:
            g: a graph on the CPU.
            seed_nodes: ids (k,), by type where there are several, each once.
            exclude_eids: ids (by edge type) of edges that are not drawn; None: all may be.

        Returns:
            Input ids, output ids (both by type where there are several) and a list of blocks, the first layer's
            first.

        Raises:
            GraphError: an id is out of range, a seed is given twice, a fanout is no whole number from -1 up, or the
                graph is not on the CPU.
            NameLookupError: there is no such type or feature.
            FeatureError: ``prob`` is not one number from 0 up an edge.
        """
        seeds = nodes_by_type(g, seed_nodes)
        first, second, share = self._place()
        needed, blocks = seeds, list[Graph]()
        for layer, fanout in enumerate(reversed(self.fanouts)):
            number = 0 if self.layer_dependency else layer
            variates = Variates(mix(first + number & MASK), mix(second + number & MASK), share)
            labor = Labor(fanout, self.prob, self.importance_sampling, variates)
            drawn, weights = draw_labor(g, needed, labor, exclude=exclude_eids)
            needed, block = make_block(g, needed, drawn)
            for etype in g.canonical_etypes if labor.gives_weights else ():
                block.edge_frames[etype][WEIGHTS] = torch.from_numpy(weights.get(etype, np.empty(0))).float()
            blocks.insert(0, block)
        return as_given(g, needed), as_given(g, seeds), blocks

    def _place(self) -> tuple[int, int, float]:
        """The keys between which this minibatch's numbers lie, and how far it is from the first to the second."""
        root, number = self._batch()
        if self.batch_dependency < 1:
            return mix(root), 0, 0.0
        group, step = divmod(number, self.batch_dependency)
        first, second = (mix(root + mix(group + i) & MASK) for i in (0, 1))
        return first, second, step / self.batch_dependency

    def _batch(self) -> tuple[int, int]:
        """What all numbers follow from, and the minibatch's number: the loader's, or as this sampler counts."""
        place = batch_place()
        if self._seed is None and place is not None:
            return place
        if self._seed is None and self.batch_dependency == 1:
            return next_key(), 0
        with self._lock:
            if self._root is None:
                self._root = next_key() if self._seed is None else self._seed & MASK
            self._count += 1
            return self._root, self._count - 1
