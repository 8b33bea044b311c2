"""What nobody can mean, for every argument of functions of ``vgraph``, of servers, of graphs that grow and of plans.

Each is accepted, or refused by an error of vgraph's that tells its cure, and nothing of what is given is written to.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from scipy import sparse

import vgraph
from tests.test_absurd_values import ABSURD, OF_ALL, graph, parameters_of, state_of
from vgraph.errors import VGraphError
from vgraph.nn import ChildSumTreeLSTM


def of_types() -> vgraph.Graph:
    g = vgraph.heterograph({("a", "x", "b"): ([0, 1], [0, 0]), ("b", "y", "a"): ([0], [1])})
    g.nodes["a"].data["h"], g.nodes["b"].data["h"] = torch.ones(2, 2), torch.ones(1, 2)
    return g


def tree() -> vgraph.Graph:
    g = vgraph.graph(([0, 1], [2, 2]))
    g.ndata["h"] = torch.ones(3, 2)
    return g


MATRIX, POINTS, ENDS = sparse.coo_matrix([[1.0, 0.0], [1.0, 1.0]]), torch.rand(5, 2), {"u": [0], "v": [1]}
SIDES = networkx.DiGraph([(0, 1)])
networkx.set_node_attributes(SIDES, {0: 0, 1: 1}, "bipartite")
NAMES = {"utype": "u", "etype": "e", "vtype": "v"}
# function of vgraph -> arguments that it takes
OF_VGRAPH: dict[str, dict[str, Any]] = {
    **{name: {"graphs": [graph(), graph()]} for name in ("batch", "merge", "compact_graphs")},
    **{name: {"g": graph()} for name in ("add_self_loop", "add_reverse_edges", "laplacian_lambda_max", "line_graph")},
    **{name: {"g": graph()} for name in ("norm_by_dst", "remove_self_loop", "reorder_graph", "reverse", "to_block")},
    **{name: {"g": graph()} for name in ("to_bidirected", "to_networkx", "to_simple")},
    **{name: {"g": graph(), "k": 1} for name in ("khop_adj", "khop_graph", "lap_pe", "random_walk_pe")},
    **{name: {"graph": graph(), "nodes": [0]} for name in ("in_subgraph", "node_subgraph", "out_subgraph")},
    **{name: {"graph": graph(), "nodes": [0], "k": 1} for name in ("khop_in_subgraph", "khop_out_subgraph")},
    **{f"{word}_nodes": {"graph": graph(), "feat": "h"} for word in ("max", "mean", "readout", "softmax", "sum")},
    **{f"{word}_edges": {"graph": graph(), "feat": "w"} for word in ("max", "mean", "readout", "softmax", "sum")},
    **{f"broadcast_{word}": {"graph": graph(), "graph_feat": torch.ones(1, 2)} for word in ("nodes", "edges")},
    **{f"bfs_{word}_generator": {"graph": graph(), "source": [0]} for word in ("nodes", "edges")},
    **{f"dfs_{word}_generator": {"graph": graph(), "source": [0]} for word in ("edges", "labeled_edges")},
    **{name: {"rows": torch.ones(2, 2), "ids": torch.tensor([0, 1])} for name in ("at", "rows_at")},
    "unbatch": {"g": vgraph.batch([graph(), graph()])},
    "slice_batch": {"g": vgraph.batch([graph(), graph()]), "gid": 0},
    "collate": {"samples": [graph(), graph()]},
    "add_edges": {"g": graph(), **ENDS},
    "add_nodes": {"g": graph(), "num": 1},
    "remove_edges": {"g": graph(), "eids": [0]},
    "remove_nodes": {"g": graph(), "nids": [0]},
    "edge_subgraph": {"graph": graph(), "edges": [0]},
    "edge_type_subgraph": {"graph": of_types(), "etypes": ["x"]},
    "node_type_subgraph": {"graph": of_types(), "ntypes": ["a", "b"]},
    "metapath_reachable_graph": {"g": of_types(), "metapath": ["x", "y"]},
    "to_homogeneous": {"G": of_types()},
    "to_heterogeneous": {"G": vgraph.to_homogeneous(of_types()), "ntypes": ["a", "b"], "etypes": ["x", "y"]},
    "block_to_graph": {"block": vgraph.to_block(graph())},
    "create_block": {"data_dict": ([0], [0])},
    "graph": {"data": ([0], [1])},
    "heterograph": {"data_dict": {("a", "x", "b"): ([0], [0])}},
    "rand_graph": {"num_nodes": 3, "num_edges": 2},
    "rand_bipartite": {**NAMES, "num_src_nodes": 3, "num_dst_nodes": 3, "num_edges": 2},
    "from_networkx": {"nx_graph": networkx.path_graph(3)},
    "from_scipy": {"sp_mat": MATRIX},
    "from_pandas": {"frame": {"src": [0], "dst": [1]}},
    "bipartite_from_networkx": {"nx_graph": SIDES, **NAMES},
    "bipartite_from_scipy": {"sp_mat": MATRIX, **NAMES},
    "filter_nodes": {"graph": graph(), "predicate": lambda nodes: nodes.data["h"][:, 0] > 0},
    "filter_edges": {"graph": graph(), "predicate": lambda edges: edges.data["w"][:, 0] > 0},
    "knn_graph": {"x": POINTS, "k": 2},
    "radius_graph": {"x": POINTS, "r": 1.0},
    "segmented_knn_graph": {"x": POINTS, "k": 1, "segs": [2, 3]},
    "non_backtracking": {"g": graph(), "messages": torch.ones(4, 2)},
    "prop_nodes": {"graph": graph(), "nodes_generator": [[0]], **OF_ALL},
    "prop_edges": {"graph": graph(), "edges_generator": [[0]], **OF_ALL},
    "prop_nodes_bfs": {"graph": graph(), "source": [0], **OF_ALL},
    "prop_edges_dfs": {"graph": graph(), "source": [0], **OF_ALL},
    "prop_nodes_topo": {"graph": tree(), **OF_ALL},
    "reduce": {"tensor": torch.ones(3, 2)},
    "topk_nodes": {"graph": graph(), "feat": "h", "k": 1},
    "topk_edges": {"graph": graph(), "feat": "w", "k": 1},
    "topological_nodes_generator": {"graph": tree()},
    "seed": {"val": 0},
}
# below, or of other packages: graphs of PyG and DGL, what torch's own linear says, nothing that is given
ELSEWHERE = {
    *("accelerate", "explain", "grow", "parallelize", "place", "serve", "load_graphs", "load_labels", "save_graphs"),
    *("from_dgl", "from_pyg", "linear", "release_memory", "to_pandas", "to_pyg"),
}


def failures(
    call: Callable[..., object], valid: dict[str, Any], names: list[str], unchanged: Callable[[], object] = lambda: None
) -> Iterator[str]:
    """What comes through of calls with one argument that nobody can mean."""
    before, given = unchanged(), copy.deepcopy(ABSURD)
    for name in names:
        for value in given:
            try:
                call(**{**valid, name: value})
            except VGraphError as error:
                if not error.cure:
                    yield f"{name}={value!r} has no cure: {error}"
                if unchanged() != before:
                    yield f"{name}={value!r} has left a change"
            except Exception as error:
                yield f"{name}={value!r}: {type(error).__name__}: {error}"
    pairs = [pair for pair in zip(given, ABSURD, strict=True) if isinstance(pair[0], torch.Tensor)]
    if not all(torch.equal(*pair) for pair in pairs):
        yield "a tensor that was given has been written to"


def test_every_function_is_asked() -> None:
    others = [name for name in vgraph.__all__ if name not in ELSEWHERE]
    assert {name for name in others if inspect.isfunction(getattr(vgraph, name))} == {*OF_VGRAPH}


@pytest.mark.parametrize("name", OF_VGRAPH)
def test_functions(name: str) -> None:
    function, valid = getattr(vgraph, name), OF_VGRAPH[name]

    def call(**given: Any) -> None:
        found = function(**given)
        if inspect.isgenerator(found):
            list(found)

    call(**valid)
    graphs = [value for value in valid.values() if isinstance(value, vgraph.Graph) and value.is_homogeneous]
    in_place = name.startswith("prop_")
    state = (lambda: None) if in_place else lambda: [state_of(g) for g in graphs if not g.is_block]
    assert list(failures(call, valid, list(parameters_of(function)), state)) == []


def test_files_of_graphs(tmp_path: Path) -> None:
    file = tmp_path / "g.bin"
    vgraph.save_graphs(file, [graph()])
    for function in (vgraph.load_graphs, vgraph.load_labels):
        assert list(failures(function, {"filename": file}, list(parameters_of(function)))) == []
    valid = {"filename": file, "g_list": [graph()]}
    names = ["g_list", "labels", "formats"]
    assert list(failures(vgraph.save_graphs, valid, names)) == []
    for path in (None, 3, b"x", ["x"], {}):
        with pytest.raises(VGraphError, match="give a path"):
            vgraph.save_graphs(path, [graph()])  # pyright: ignore[reportArgumentType]


LSTM = ChildSumTreeLSTM(3, 4)


@pytest.mark.parametrize("name", ["add_nodes", "propose", "states"])
def test_graphs_that_grow(name: str) -> None:
    valid = {"ids": [0]} if name == "states" else {"num": 1, "edges": ([0], [2]), "x": torch.ones(1, 3)}

    def begun() -> vgraph.GrowingGraph:
        growing = vgraph.grow(LSTM)
        growing.add_nodes(2, x=torch.ones(2, 3))
        return growing

    def call(**given: Any) -> None:
        growing = begun()
        before = seen(growing)
        places = [given.pop(key) for key in ("num", "edges") if key in given]
        try:
            getattr(growing, name)(*places, **given)
        except VGraphError:
            assert seen(growing) == before
            raise

    def seen(growing: vgraph.GrowingGraph) -> object:
        states = {key: rows.tolist() for key, rows in growing.states().items()}
        return growing.num_nodes, growing.num_edges, growing.graph_ids.tolist(), states

    call(**valid)
    names = [*valid, "graph_ids"] if name != "states" else list(valid)
    assert list(failures(call, valid, names)) == []


def test_grow_and_serve() -> None:
    assert list(failures(vgraph.grow, {"function": LSTM}, ["function", "num_graphs", "device", "feature"])) == []

    def serve(**given: Any) -> None:
        vgraph.serve(**given).close()

    assert list(failures(serve, {"function": LSTM}, list(parameters_of(vgraph.serve)))) == []
    with vgraph.serve(LSTM) as server:

        def submit(**given: Any) -> object:
            return server.submit(**given).result(timeout=20)

        valid = {"graph": tree(), "x": torch.ones(3, 3)}
        submit(**valid)
        assert list(failures(submit, valid, list(valid))) == []
        submit(**valid)


def test_a_loader_and_what_explains() -> None:
    def load(**given: Any) -> object:
        return list(vgraph.GraphLoader(**given))

    names = list(parameters_of(vgraph.GraphLoader))
    assert list(failures(load, {"graphs": [tree(), tree()], "batch_size": 2}, names)) == []

    def explain(target: object, graph: object, source: object = None, **features: Any) -> object:
        return vgraph.explain(target, graph, source=source, **features)  # pyright: ignore

    valid = {"target": LSTM, "graph": tree(), "x": torch.ones(3, 3)}
    assert list(failures(explain, valid, ["target", "graph", "x"])) == []
    for source in (3, b"x", ["x"], torch.ones(1)):
        with pytest.raises(VGraphError, match="give a path"):
            explain(**valid, source=source)


class Model(torch.nn.Linear):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:  # pyright: ignore
        z = super().forward(x)
        return z if y is None else (z - y).square().mean()


BATCH = (torch.ones(4, 8), torch.zeros(4, 8))


def test_plans(tmp_path: Path) -> None:  # some seconds: whatever is accepted divides the step
    model = Model(8, 8)
    valid: dict[str, Any] = {"model": model, "example_inputs": BATCH, "num_workers": 2}
    assert list(failures(vgraph.parallelize, valid, list(parameters_of(vgraph.parallelize)))) == []
    plan = vgraph.parallelize(**valid)
    plan.save(tmp_path / "plan.json")

    def run(inputs: object = BATCH, **given: Any) -> object:
        return plan.run_in_process(*(inputs if isinstance(inputs, tuple) else (inputs,)), **given)

    def evaluate(inputs: object = BATCH[:1], **given: Any) -> object:
        return plan.evaluate_in_process(*(inputs if isinstance(inputs, tuple) else (inputs,)), **given)

    held = {"inputs": BATCH, "state": {}, "lr": None, "seed": None}
    calls: list[tuple[Callable[..., object], dict[str, Any], list[str]]] = [
        (plan.simulate, {}, ["preset"]),
        (plan.load, {"path": tmp_path / "plan.json"}, ["path"]),
        (plan.with_options, {}, ["fused_fetch", "other"]),
        (run, {}, ["inputs", "state", "lr", "seed"]),
        (evaluate, {}, ["inputs", "state"]),
        (plan.given, held, list(held)),
        (plan.launch, {}, ["device", "timeout"]),
        (plan.worker, {}, ["device", "timeout"]),
        (plan.as_dtensor, {"model": model, "mesh": None}, ["model", "mesh"]),
    ]
    assert [said for call in calls for said in failures(*call)] == []
    for path in (None, -1, b"x", ["x"], torch.ones(1)):
        for save in (plan.save, plan.save_plot):
            with pytest.raises(VGraphError, match="give a path"):
                save(path)  # pyright: ignore[reportArgumentType]


def test_placements() -> None:
    valid = {"model": torch.nn.Linear(8, 8), "example_inputs": BATCH[:1], "trials": 1, "repeats": 1}
    names = [name for name in parameters_of(vgraph.place) if name != "profile"]
    assert list(failures(vgraph.place, valid, names)) == []
    placement = vgraph.place(**valid)

    def run(inputs: object) -> object:
        return placement.run(*(inputs if isinstance(inputs, tuple) else (inputs,)))

    assert list(failures(run, {}, ["inputs"])) == []
    for path in (-1, b"x", ["x"], torch.ones(1)):
        for save in (placement.save_plot, placement.save_dot, lambda path: vgraph.place(**valid, profile=path)):
            with pytest.raises(VGraphError, match=r"the name of a file|give a path"):
                save(path)  # pyright: ignore[reportArgumentType]
