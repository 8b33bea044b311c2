"""The names of ``dgl.distributed``: in one process, and a program of DistDGL in two."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
import vgraph.compat
import vgraph.distributed as vd
import vgraph.function as fn
import vgraph.nn as layers
from tests.distributed.launch import PROJECT, on_ranks
from vgraph.compat.modules import lookup
from vgraph.errors import DataError, DTypeError, FeatureError, FunctionError, GraphError, NameLookupError


def named(name: str) -> Any:
    return lookup("dgl.distributed", name)


def ring(folder: Path, num_nodes: int = 4) -> vgraph.Graph:
    ids = torch.arange(num_nodes)
    g = vgraph.graph((ids, (ids + 1) % num_nodes))
    g.ndata["h"], g.edata["w"] = ids.float(), ids.float() * 10
    g.ndata["mask"] = (ids % 2).to(torch.uint8)
    named("partition_graph")(g, "ring", 2, str(folder), part_method="random", num_trainers_per_machine=2)
    return g


@pytest.fixture
def own(tmp_path: Path) -> Any:
    ring(tmp_path)
    return named("DistGraph")("ring", part_config=str(tmp_path / "ring.json"))


def test_a_program_of_distdgl(tmp_path: Path) -> None:
    named("initialize")("ip_config.txt", num_workers=0)
    ring(tmp_path)
    own = named("DistGraph")("ring", part_config=str(tmp_path / "ring.json"))
    assert isinstance(own, vd.DistGraph) and own.whole.stored.num_parts == 4
    own.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert own.ndata["s"][own.new_ids(torch.arange(4))].tolist() == [3.0, 0.0, 1.0, 2.0]
    named("exit_client")()
    assert named("init") is vd.init


def test_brackets_are_of_all_rows_and_the_rest_is_of_own_ones(own: Any) -> None:
    h, new = own.ndata["h"], own.new_ids(torch.arange(4))
    assert isinstance(h, named("DistTensor")) and h.shape == (4,) and len(h) == 4
    assert h[new].tolist() == [0.0, 1.0, 2.0, 3.0] and h[new[3]].item() == 3.0
    assert torch.equal(h[0:4], h.local_partition) and torch.equal(
        h[h > 1.5], h.local_partition[h.local_partition > 1.5]
    )
    assert torch.equal(h * 2 + 1, h.local_partition * 2 + 1) and torch.equal(1 - h, 1 - h.local_partition)
    assert torch.equal(torch.relu(-h), torch.zeros(4)) and h.sum().item() == 6.0 and h.dtype == torch.float32
    h[new[:2]] = torch.tensor([7.0, 8.0])
    assert own.ndata["h"][new].tolist() == [7.0, 8.0, 2.0, 3.0]
    w = own.edata["w"]
    assert torch.equal(w[torch.arange(4)] / 10, own.own_edge_ids().float())
    assert own.in_degrees(new).tolist() == own.out_degrees(new).tolist() == [1] * 4
    assert own.in_degrees(torch.tensor([True, False, True, False])).tolist() == [1] * 2
    with pytest.raises(DTypeError, match="a mask of 4, one for each node; this has 2"):
        own.in_degrees(torch.tensor([True, False]))
    assert torch.equal(own.nodes["_N"].data["h"].local_partition, h.local_partition)
    own.ndata["twice"] = h + h
    own.ndata["again"] = own.ndata["twice"]
    assert set(own.ndata) == {"h", "mask", "twice", "again"} and own.ndata.pop("again").tolist() == (h * 2).tolist()


def test_layers_take_features_of_such_a_graph(own: Any) -> None:
    own.ndata["x"] = torch.rand(4, 3)
    plain = vd.DistGraph(own.whole.stored)
    torch.manual_seed(1)
    for layer in (
        layers.GraphConv(3, 2),
        layers.GATConv(3, 2, 2),
        layers.PNAConv(3, 2, ["mean", "max"], ["identity"], 1.0),
    ):
        wanted = layer(plain, own.ndata["x"].local_partition)
        torch.testing.assert_close(layer(own, own.ndata["x"]), wanted)


def test_what_brackets_refuse(own: Any) -> None:
    h = own.ndata["h"]
    for given, error, words in (
        (torch.tensor([4]), GraphError, "not among the 4 rows"),
        (torch.tensor([0.5]), DTypeError, "ids are torch.float32"),
        (torch.tensor([True, False]), GraphError, "a mask has shape"),
    ):
        with pytest.raises(error, match=words):
            h[given]
    with pytest.raises(NameLookupError, match="other"):
        own.ndata["other"]


def test_tensors_are_made_for_the_newest_graph(own: Any) -> None:
    make = named("DistTensor")
    made = make((4, 2), torch.float64, "h1", lambda shape, dtype: torch.full(shape, 3, dtype=dtype))
    made[torch.tensor([1, -1])] = 5
    assert made[0:4].tolist() == [[3, 3], [5, 5], [3, 3], [5, 5]] and made.dtype == torch.float64
    policy = own.get_edge_partition_policy("_E")
    assert make((4,), part_policy=policy).part_policy.kind == "edge" and policy.part_id == 0
    with pytest.raises(FeatureError, match="no type of nodes or edges of a DistGraph has 9 rows"):
        make((9, 2))
    with pytest.raises(FeatureError, match="the tensor has 3 rows, and there are 4"):
        make((3,), part_policy=policy)


def test_splits(own: Any) -> None:
    node_split, edge_split, book = named("node_split"), named("edge_split"), own.get_partition_book()
    odd = own.new_ids(torch.tensor([1, 3])).sort().values
    every = torch.arange(4)
    assert torch.equal(node_split(own.ndata["mask"], book), odd)
    assert torch.equal(node_split(own.ndata["mask"]), odd)
    assert torch.equal(node_split(own.ndata["mask"][every], book, force_even=False), odd)
    assert torch.equal(node_split(every.numpy(), book), every)
    assert torch.equal(edge_split(torch.ones(4, dtype=torch.bool), book), every)
    with pytest.raises(FeatureError, match="a split needs a partition book"):
        node_split(every)
    with pytest.raises(GraphError, match="a mask has 2 entries for 4 rows"):
        edge_split(torch.tensor([True, False]), book)
    with pytest.raises(GraphError, match="by trainer ids"):
        node_split(every, book, node_trainer_ids=every)
    with pytest.raises(FeatureError, match="one truth value a row"):
        own.ndata["wide"] = torch.ones(4, 2)
        node_split(own.ndata["wide"])


def test_parts_on_disk_one_by_one(tmp_path: Path) -> None:
    g = ring(tmp_path, 12)
    config, seen = tmp_path / "ring.json", []
    for number in range(4):
        part, nodes, edges, book, name, ntypes, etypes = named("load_partition")(config, number)
        assert (name, ntypes, etypes) == ("ring", ["_N"], ["_E"])
        inner = part.ndata["inner_node"]
        assert torch.equal(part.ndata[vgraph.NID][inner], book.partid2nids(number))
        assert torch.equal(part.edata[vgraph.EID], book.partid2eids(number))
        assert torch.equal(book.nid2partid(part.ndata[vgraph.NID]) == number, inner)
        assert torch.equal(book.nid2localnid(book.partid2nids(number), number), torch.arange(int(inner.sum())))
        src, dst = part.edges()
        orig = nodes["_N/h"][dst]  # node i of the ring has the feature i, its in-edge 10 (i - 1)
        assert torch.equal(edges["_N:_E:_N/w"], (orig - 1) % 12 * 10) and bool(inner[dst].all())
        seen += nodes["_N/h"].tolist()
        assert len(src) == book.metadata()[number]["num_edges"]
        with pytest.raises(GraphError, match=f"partition {number} has nodes"):
            book.nid2localnid(part.ndata[vgraph.NID][~inner], number)
        for asks in (book.nid2partid, lambda mask: book.nid2localnid(mask, number)):  # noqa: B023
            with pytest.raises(DTypeError, match="ids are whole numbers"):
                asks(torch.tensor([True, False]))
    assert sorted(seen) == g.ndata["h"].tolist()
    with pytest.raises(GraphError, match="there is no part 4 among 4"):
        named("load_partition_book")(config, 4)
    with pytest.raises(NameLookupError, match="no type of nodes is 'user'"):
        named("load_partition_book")(config, 0)[0].node_bounds("user")


def test_what_partitioning_takes(tmp_path: Path) -> None:
    g = vgraph.rand_graph(40, 200)
    nodes, edges = named("partition_graph")(
        g, "g", 2, str(tmp_path), balance_ntypes=torch.arange(40) % 2, balance_edges=True, return_mapping=True
    )
    stored = vd.PartitionedGraph.open(tmp_path / "g")
    assert torch.equal(stored.new_ids("_N")[nodes].long(), torch.arange(40)) and not len(g.ndata)
    assert torch.equal(edges.sort().values, torch.arange(200)) and stored.manifest.balance == ("edges", "_balance")
    with pytest.raises(FunctionError, match="objtype is 'vol'"):
        named("partition_graph")(g, "g", 2, str(tmp_path), objtype="vol")
    (tmp_path / "theirs.json").write_text("{}")
    with pytest.raises(DataError, match="a partition that DGL wrote"):
        named("DistGraph")("theirs", part_config=str(tmp_path / "theirs.json"))


def test_what_loaders_refuse(own: Any) -> None:
    loader = lookup("dgl.dataloading", "DistNodeDataLoader")
    with pytest.raises(FunctionError, match="DistNodeDataLoader takes no exclude"):
        loader(own, own.nodes(), None, exclude="self")
    with pytest.raises(FunctionError, match="none can be left out"):
        named("sample_neighbors")(own, [0], 1, exclude_edges=[0])


@pytest.fixture
def as_dgl() -> Iterator[None]:
    """``import dgl`` leads to vgraph within the test."""
    before = set(sys.modules)
    vgraph.compat.install()
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "dgl":
            del sys.modules[name]


@pytest.mark.usefixtures("as_dgl")
def test_names_that_are_not_there_name_the_page() -> None:
    absent = importlib.import_module("dgl.distributed")
    with pytest.raises(AttributeError, match=r"docs/guides/processes\.md; `python -m vgraph.compat --check"):
        _ = absent.DistEmbedding
    with pytest.raises(AttributeError, match=r"docs/coming_from/dgl\.md; `python -m vgraph.compat --check"):
        _ = importlib.import_module("dgl.dataloading").DistEdgeDataLoader


def test_a_program_of_distdgl_in_processes(tmp_path: Path) -> None:
    ranks = 2
    program = PROJECT / "tests" / "distributed" / "dist_dgl_program.py"
    said = on_ranks("vgraph.compat", ranks, str(program), str(tmp_path), VGRAPH_KERNELS="0")
    told = re.findall(r"(\d): (\d+) train, \[([^]]*)\] by hand, (\d+) of 30 right", said)
    assert len(told) == ranks, said
    assert sum(int(count) for _, count, _, _ in told) == 30
    by_hand = [[int(one) for one in text.split(",")] for _, _, text, _ in told]
    assert sum(map(sum, by_hand)) in (30, 31) and len({len(one) for one in by_hand}) == 1
    assert all(int(right) >= 27 for _, _, _, right in told), said
