"""PyG's own Data, HeteroData and batches as graphs, and back: nothing lost, nothing taken for something else."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError, GraphError

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        from torch_geometric.data import Batch, Data, HeteroData
        from torch_geometric.loader import DataLoader
except ImportError:
    pytest.skip("torch_geometric is not installed", allow_module_level=True)

WRITES, CITES, LONE = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "of", "paper")


def citations(authors: int = 3, papers: int = 4, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    data = HeteroData()
    data["author"].x = drawn(authors, 2)
    data["paper"].x = drawn(papers, 5)
    data["paper"].train_mask = drawn(papers) > 0.5
    data["venue"].num_nodes = 2
    data[WRITES].edge_index = torch.stack([torch.arange(authors), torch.arange(authors) % papers])
    data[WRITES].edge_attr = drawn(authors, 3)
    data[CITES].edge_index = torch.tensor([[papers - 1, 0, 0], [0, 1, 1]])
    data[LONE].edge_index = torch.empty(2, 0, dtype=torch.long)
    data.y = drawn(1, 6)
    data.name = "no tensor"
    return data


def same_tensors(one: Any, other: Any) -> None:
    """All tensors of two HeteroData, by type and name, are equal."""
    assert set(one.node_types) == set(other.node_types) and set(one.edge_types) == set(other.edge_types)
    for kind in (*one.node_types, *one.edge_types):
        mine, theirs = one[kind], other[kind]
        assert mine.num_nodes == theirs.num_nodes if isinstance(kind, str) else True
        names = {name for name in (*mine.keys(), *theirs.keys()) if name != "num_nodes"}
        for name in names:
            assert torch.equal(mine[name], theirs[name]), (kind, name)


def test_types_go_both_ways() -> None:
    data = citations()
    g = vgraph.from_pyg(data)
    assert (g.ntypes, g.canonical_etypes) == (["author", "paper", "venue"], [WRITES, CITES, LONE])
    assert [g.num_nodes(t) for t in g.ntypes] == [3, 4, 2] and g.num_edges(LONE) == 0
    assert torch.equal(torch.stack(g.edges(etype=CITES)), data[CITES].edge_index)
    assert torch.equal(g.edges[WRITES].data["edge_attr"], data[WRITES].edge_attr)
    assert g.nodes["paper"].data["train_mask"].dtype == torch.bool
    assert torch.equal(g.gdata["y"], data.y) and "name" not in g.gdata
    back = vgraph.to_pyg(g)
    same_tensors(data, back)
    assert torch.equal(back.y, data.y) and back["paper"].x.data_ptr() == data["paper"].x.data_ptr()


def test_messages_along_types() -> None:
    data = citations()
    g = vgraph.from_pyg(data)
    g.nodes["author"].data["h"] = data["author"].x
    g["writes"].update_all(lambda edges: {"m": edges.src["h"]}, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})
    src, dst = data[WRITES].edge_index
    expected = torch.zeros(4, 2).index_add(0, dst, data["author"].x[src])
    torch.testing.assert_close(g.nodes["paper"].data["s"], expected)


@pytest.mark.parametrize("has_ptr", [True, False])
def test_batches_of_types_keep_their_graphs(has_ptr: bool) -> None:
    batch: Any = Batch.from_data_list([citations(3, 4, 0), citations(1, 2, 1), citations(2, 6, 2)])
    if not has_ptr:
        for t in batch.node_types:
            del batch[t].ptr
    g = vgraph.from_pyg(batch)
    assert g.batch_size == 3
    assert g.batch_num_nodes("author").tolist() == [3, 1, 2] and g.batch_num_nodes("paper").tolist() == [4, 2, 6]
    assert g.batch_num_edges(CITES).tolist() == [3, 3, 3] and g.batch_num_edges(LONE).tolist() == [0, 0, 0]
    assert torch.equal(g.gdata["y"], batch.y) and set(g.nodes["author"].data) == {"x"}
    back = vgraph.to_pyg(g)
    assert back["paper"].ptr.tolist() == [0, 4, 6, 12]
    assert torch.equal(back["paper"].batch, batch["paper"].batch)
    part = vgraph.unbatch(g)[1]
    same_tensors(citations(1, 2, 1), vgraph.to_pyg(part))


def test_the_last_graph_of_a_batch_may_lack_a_type() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(3, 1), torch.ones(2, 1)
    data["a"].batch, data["b"].batch = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 1]])
    g = vgraph.from_pyg(data)
    assert g.batch_num_nodes("a").tolist() == [1, 1, 1] and g.batch_num_nodes("b").tolist() == [1, 1, 0]


def test_nodes_that_only_edges_name() -> None:
    data = HeteroData()
    data["a"].x = torch.ones(2, 1)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [4, 2]])
    assert vgraph.from_pyg(data).num_nodes("b") == 5


@pytest.mark.parametrize(
    ("index", "fact"),
    [
        (None, r"there is no edge_index of \('author', 'writes', 'paper'\)"),
        (torch.zeros(3, 2, dtype=torch.long), r"edge_index of \('author', 'writes', 'paper'\) has shape \(3, 2\)"),
        (torch.tensor([[0], [99]]), "99"),
    ],
)
def test_malformed_edges_are_refused(index: Tensor | None, fact: str) -> None:
    data = citations()
    del data[WRITES].edge_index
    if index is not None:
        data[WRITES].edge_index = index
    with pytest.raises(GraphError, match=fact):
        vgraph.from_pyg(data)


def test_node_types_without_edges_are_no_graph() -> None:
    data = HeteroData()
    data["a"].x = torch.ones(2, 1)
    with pytest.raises(GraphError, match="needs edges by type"):
        vgraph.from_pyg(data)


def test_names_that_mean_something_to_pyg_are_refused() -> None:
    g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0], [1]))])
    g.ndata["batch"] = torch.ones(4)
    with pytest.raises(FeatureError, match="PyG has a meaning of its own for the feature 'batch'"):
        vgraph.to_pyg(g)
    typed = vgraph.from_pyg(citations())
    typed.edges[WRITES].data["edge_index"] = torch.ones(3)
    with pytest.raises(FeatureError, match="of its own for the feature 'edge_index'"):
        vgraph.to_pyg(typed)
    typed = vgraph.from_pyg(citations())
    typed.gdata["paper"] = torch.ones(1)
    with pytest.raises(FeatureError, match="has the name of the node type 'paper'"):
        vgraph.to_pyg(typed)
    with pytest.raises(GraphError, match="a block has nodes of its own on each side"):
        vgraph.to_pyg(vgraph.to_block(vgraph.graph(([0], [1]))))


def test_one_type_goes_both_ways() -> None:
    index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 0]])
    given = [
        Data(
            edge_index=index,
            x=torch.rand(3, 2),
            edge_attr=torch.rand(4, 1),
            y=torch.tensor([k]),
            mask=torch.ones(3) > 0,
        )
        for k in range(3)
    ]
    batch = next(iter(DataLoader(given, batch_size=3)))
    g = vgraph.from_pyg(batch)
    assert (set(g.ndata), set(g.edata), set(g.gdata)) == ({"x", "mask"}, {"edge_attr"}, {"y"})
    back = vgraph.to_pyg(g)
    for name in ("edge_index", "x", "edge_attr", "y", "mask", "batch", "ptr"):
        assert torch.equal(back[name], batch[name]), name


def test_ids_of_another_width_and_index_tensors_of_pyg() -> None:
    from torch_geometric import EdgeIndex

    index = EdgeIndex([[0, 1, 2], [1, 2, 0]], sparse_size=(3, 3), sort_order="row")
    g = vgraph.from_pyg(Data(edge_index=index, num_nodes=3), idtype=torch.int32)
    src, dst = g.edges()
    assert type(src) is Tensor and src.dtype == torch.int32 and dst.tolist() == [1, 2, 0]
    assert vgraph.to_pyg(g).edge_index.dtype == torch.int64
    assert vgraph.in_subgraph(vgraph.graph((index[0], index[1])), index[1][:1]).num_edges() == 1
    typed = vgraph.from_pyg(citations(), idtype=torch.int32)
    assert typed.idtype == torch.int32


def test_an_attribute_that_a_program_names_so_is_no_type() -> None:
    data = SimpleNamespace(edge_index=torch.tensor([[0], [1]]), num_nodes=2, edge_types=torch.tensor([3]))
    assert vgraph.from_pyg(data).edata["edge_types"].tolist() == [3]


def test_without_pyg_types_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    g = vgraph.from_pyg(citations())
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(vgraph.errors.FunctionError, match="to_pyg needs torch_geometric"):
        vgraph.to_pyg(g)
