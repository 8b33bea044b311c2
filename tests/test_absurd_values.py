"""What nobody can mean, for every argument of methods of graphs, of samplers and of loaders.

Each is accepted, or refused by an error of vgraph's that leaves the graph as it was; no error of torch's, of NumPy's
or of Python's comes through. Functions of ``vgraph``, servers, graphs that grow and plans are asked in
``test_absurd_calls.py``, numbers and flags of all packages in ``test_arguments.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph import sampling
from vgraph.errors import VGraphError

ABSURD: list[Any] = [
    *(None, -1, 2**70, float("nan"), float("inf"), 1.5, True, "x", "", b"x", [], {}, (), set(), object()),
    *([None], ["a", 1], {"z": 1}, slice("a"), np.array(["a"])),
    *(torch.tensor([]), torch.ones(2, 3), torch.tensor([9]), torch.tensor([-1]), torch.tensor([0.5]), torch.tensor(3)),
    *(torch.tensor([True]), torch.ones(2) * 1j),
]
SUM = (fn.copy_u("h", "m"), fn.sum("m", "x"))
OF_ALL = {"message_func": SUM[0], "reduce_func": SUM[1]}


def graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 2], [2, 2, 0, 1]))
    g.ndata["h"], g.edata["w"], g.edata["p"] = torch.ones(3, 2), torch.ones(4, 1), torch.ones(4)
    return g


# method -> arguments that it takes
OF_GRAPHS: dict[str, dict[str, Any]] = {
    **{name: {"nodes": [0]} for name in ("subgraph", "in_subgraph", "out_subgraph")},
    **{name: {"nodes": [0], "k": 1} for name in ("khop_in_subgraph", "khop_out_subgraph")},
    **{name: {} for name in ("reverse", "to_simple", "to_bidirected", "line_graph", "reorder_graph", "adj", "formats")},
    **{name: {} for name in ("add_self_loop", "remove_self_loop", "adj_external", "to_scipy", "in_degrees")},
    **{name: {"v": [0]} for name in ("in_edges", "predecessors", "successors")},
    **{name: {"u": [0]} for name in ("out_edges", "out_degrees")},
    **{name: {"u": [0], "v": [2]} for name in ("edge_ids", "has_edges_between", "add_edges")},
    "edge_subgraph": {"edges": [0]},
    "sample_neighbors": {"nodes": [0], "fanout": 1},
    "select_topk": {"k": 1, "weight": "p"},
    "global_uniform_negative_sampling": {"num_samples": 1},
    "add_nodes": {"num": 1},
    "remove_edges": {"eids": [0]},
    "remove_nodes": {"nids": [0]},
    "has_nodes": {"vid": [0]},
    "find_edges": {"eid": [0]},
    "update_all": OF_ALL,
    "pull": {"v": [0], **OF_ALL},
    "push": {"u": [0], **OF_ALL},
    "send_and_recv": {"edges": [0], **OF_ALL},
    "apply_edges": {"func": SUM[0]},
    "apply_nodes": {"func": lambda nodes: {"z": nodes.data["h"]}},
    "multi_update_all": {"etype_dict": {"_E": SUM}, "cross_reducer": "sum"},
    "filter_nodes": {"predicate": lambda nodes: nodes.data["h"][:, 0] > 0},
    "filter_edges": {"predicate": lambda edges: edges.data["w"][:, 0] > 0},
    **{
        name: {}
        for name in ("adjacency_matrix", "all_edges", "batch_num_edges", "batch_num_nodes", "coo", "csc", "csr")
    },
    **{name: {} for name in ("edge_attr_schemes", "node_attr_schemes", "get_etype_id", "get_ntype_id", "relation")},
    **{name: {} for name in ("num_dst_nodes", "num_edges", "num_nodes", "num_src_nodes", "node_frame", "to_networkx")},
    **{name: {} for name in ("number_of_dst_nodes", "number_of_edges", "number_of_nodes", "number_of_src_nodes")},
    **{name: {"fmt": "coo"} for name in ("adj_sparse", "adj_tensors")},
    **{name: {"typestr": "both"} for name in ("inc", "incidence_matrix")},
    **{name: {"u": [0], "v": [2]} for name in ("add_edge", "edge_id", "has_edge_between")},
    "astype": {"idtype": torch.int32},
    "to": {"device": "cpu"},
    "to_canonical_etype": {"etype": "_E"},
    "node_subgraph": {"nodes": [0]},
    "node_type_subgraph": {"ntypes": ["_N"]},
    "edge_type_subgraph": {"etypes": ["_E"]},
    "prop_edges": {"edges_generator": [[0]], **OF_ALL},
    "prop_nodes": {"nodes_generator": [[0]], **OF_ALL},
    "send": {"edges": [0], "message_func": SUM[0]},
    "recv": {"v": [0], "reduce_func": SUM[1]},
    "set_e_initializer": {"initializer": lambda shape, dtype, device, ids: torch.zeros(shape, dtype=dtype)},
    "set_n_initializer": {"initializer": lambda shape, dtype, device, ids: torch.zeros(shape, dtype=dtype)},
    "set_batch_num_nodes": {"val": [3]},
    "set_batch_num_edges": {"val": [4]},
}
TAKE_NOTHING = {
    *(
        "all_or_nothing",
        "clone",
        "cpu",
        "create_formats_",
        "cuda",
        "int",
        "local_scope",
        "local_var",
        "long",
        "metagraph",
    ),
}
G, DRAW = {"g": graph()}, sampling.NeighborSampler([2])


def drawn(sampler: Any) -> object:
    return sampler.sample(graph(), [0])


# name -> function, arguments that it takes, and what is done with its result
Use = Callable[[Any], object]
OF_SAMPLING: dict[str, tuple[Callable[..., Any], dict[str, Any], Use | None]] = {
    "sample_neighbors": (sampling.sample_neighbors, {**G, "nodes": [0], "fanout": 1}, None),
    "select_topk": (sampling.select_topk, {**G, "k": 1, "weight": "p"}, None),
    "sample_etype_neighbors": (
        sampling.sample_etype_neighbors,
        {**G, "nodes": [0], "etype_offset": [0, 4], "fanout": [1]},
        None,
    ),
    "sample_labors": (sampling.sample_labors, {**G, "nodes": [0], "fanout": 1}, None),
    "random_walk": (sampling.random_walk, {**G, "nodes": [0], "length": 2}, None),
    "node2vec": (sampling.node2vec_random_walk, {**G, "nodes": [0], "p": 1.0, "q": 1.0, "walk_length": 2}, None),
    "pack_traces": (sampling.pack_traces, {"traces": torch.tensor([[0, 1]]), "types": torch.tensor([0, 0])}, None),
    "negatives": (sampling.global_uniform_negative_sampling, {**G, "num_samples": 2}, None),
    "NeighborSampler": (sampling.NeighborSampler, {"fanouts": [1]}, drawn),
    "LaborSampler": (sampling.LaborSampler, {"fanouts": [1]}, drawn),
    "full": (sampling.MultiLayerFullNeighborSampler, {"num_layers": 1}, drawn),
    "ShaDowKHopSampler": (sampling.ShaDowKHopSampler, {"fanouts": [1]}, drawn),
    "SAINTSampler": (sampling.SAINTSampler, {"mode": "node", "budget": 2}, drawn),
    "EdgePredictionSampler": (sampling.EdgePredictionSampler, {"sampler": DRAW}, drawn),
    "as_edge_prediction_sampler": (sampling.as_edge_prediction_sampler, {"sampler": DRAW}, drawn),
    "Uniform": (sampling.Uniform(1), {**G, "eids": [0]}, None),
    "GlobalUniform": (sampling.GlobalUniform(1), {**G, "eids": [0]}, None),
    "RandomWalkNeighborSampler": (
        sampling.RandomWalkNeighborSampler,
        {"G": graph(), "num_traversals": 1, "termination_prob": 0.0, "num_random_walks": 2, "num_neighbors": 1},
        lambda sampler: sampler([0]),
    ),
    "of walks": (sampling.RandomWalkNeighborSampler(graph(), 1, 0.0, 2, 1), {"seed_nodes": [0]}, None),
    "sample": (DRAW.sample, {**G, "indices": [0]}, None),
    "sample_blocks": (DRAW.sample_blocks, {**G, "seed_nodes": [0]}, None),
    "of labor": (sampling.LaborSampler([1]).sample, {**G, "indices": [0]}, None),
    "set_seed": (sampling.LaborSampler([1]).set_seed, {}, None),
    "of ShaDow": (sampling.ShaDowKHopSampler([1]).sample, {**G, "indices": [0]}, None),
    "of edges": (sampling.EdgePredictionSampler(DRAW).sample, {**G, "indices": [0]}, None),
    "DataLoader": (sampling.DataLoader, {"graph": graph(), "indices": [0, 1], "graph_sampler": DRAW}, list),
    "set_epoch": (sampling.DataLoader(graph(), [0], DRAW).set_epoch, {"epoch": 1}, None),
    "attach_data": (sampling.DataLoader(graph(), [0], DRAW).attach_data, {"name": "a", "data": torch.ones(3)}, None),
    "GraphDataLoader": (sampling.GraphDataLoader, {"dataset": [graph(), graph()], "batch_size": 2}, list),
}
# of which the error of what was given says it
THEIR_OWN = {("GraphDataLoader", "dataset")}


def parameters_of(call: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield parameter.name


def state_of(g: vgraph.Graph) -> object:
    ends = [[end.tolist() for end in g.edges(etype=etype)] for etype in g.canonical_etypes]
    frames = [{name: rows.tolist() for name, rows in data.items()} for data in (g.ndata, g.edata)]
    return ends, frames, g.batch_num_nodes().tolist()


def told(call: Callable[..., Any], given: Mapping[str, Any], use: Use | None = None) -> str | None:
    """What is wrong with what comes through; None: nothing."""
    try:
        found = call(**given)
        if use is not None:
            use(found)
        if isinstance(found, GeneratorType):
            list(found)
    except VGraphError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_every_method_of_graphs_is_asked() -> None:
    every = inspect.getmembers(vgraph.Graph, inspect.isfunction)
    methods = {n for n, f in every if not n.startswith("_") and not f.__module__.startswith("vgraph.compat")}  # DGL's
    assert methods == {*OF_GRAPHS, *TAKE_NOTHING}
    assert not [name for name in TAKE_NOTHING if list(parameters_of(getattr(graph(), name)))]


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_methods_of_graphs(name: str) -> None:
    valid = OF_GRAPHS[name]
    getattr(graph(), name)(**valid)
    wrong, before = list[str](), state_of(graph())
    for parameter in parameters_of(getattr(graph(), name)):
        for value in ABSURD:
            g = graph()
            try:
                getattr(g, name)(**{**valid, parameter: value})
            except VGraphError:
                if state_of(g) != before:
                    wrong.append(f"{parameter}={value!r} leaves another graph")
            except Exception as error:
                wrong.append(f"{parameter}={value!r}: {type(error).__name__}: {error}")
    assert wrong == []


@pytest.mark.parametrize("name", OF_SAMPLING)
def test_samplers_and_loaders(name: str) -> None:
    call, valid, use = OF_SAMPLING[name]
    found = call(**valid)
    if use is not None:
        use(found)
    wrong = [
        f"{parameter}={value!r}: {said}"
        for parameter in parameters_of(call)
        if (name, parameter) not in THEIR_OWN
        for value in ABSURD
        if (said := told(call, {**valid, parameter: value}, use)) is not None
    ]
    assert wrong == []
