"""One check for each name that programs call: run with vgraph in place of DGL, and, where there is one, with DGL.

This file imports ``dgl`` and torch alone, as a program does.
"""

from __future__ import annotations

import json
from typing import Any

import checks_beyond
import checks_messages
import dgl
import torch
from samples import CHECKS, check, plain, simple, typed


# ---------------------------------------------------------------- graphs and their features
@check("g.ndata")
def _() -> Any:
    g = simple()
    g.ndata["x"] = torch.ones(5)
    popped = g.ndata.pop("x")
    return sorted(g.ndata.keys()), "x" in g.ndata, popped, g.ndata["h"]


@check("g.edata")
def _() -> Any:
    g = simple()
    g.edata.update({"x": g.edata["w"] * 2})
    return sorted(g.edata), g.edata["x"]


@check("g.srcdata", "g.dstdata")
def _() -> Any:
    block = dgl.to_block(simple(), torch.tensor([2, 0, 3]))
    block.srcdata["x"], block.dstdata["y"] = torch.ones(block.num_src_nodes()), torch.zeros(3)
    return sorted(block.srcdata), sorted(block.dstdata), block.srcdata["_ID"], simple().srcdata["h"]


@check("g.num_nodes", "g.num_edges", "g.num_src_nodes", "g.num_dst_nodes")
def _() -> Any:
    g, t = simple(), typed()
    block = dgl.to_block(g, torch.tensor([2, 0, 3]))
    return (
        g.num_nodes(), g.number_of_nodes(), g.num_edges(), g.number_of_edges(), t.num_nodes(), t.num_nodes("g"),
        t.num_edges("f"), t.num_edges(), block.num_src_nodes(), block.num_dst_nodes(), t.num_src_nodes("u"),
    )  # fmt: skip


@check("g.to", "g.cpu", "g.device")
def _() -> Any:
    g = simple()
    return str(g.to("cpu").device), str(g.cpu().device), g.to(torch.device("cpu")).ndata["h"]


@check("g.edges", "g.all_edges")
def _() -> Any:
    g = simple()
    g.edges[[1, 3]].data["w"] = torch.zeros(2, 1)
    return (
        g.edges(), g.edges(form="all"), g.edges(form="eid"), g.all_edges(order="srcdst"), g.edges[[1]].data["w"],
        typed().edges(etype="p"),
    )  # fmt: skip


@check("g.nodes")
def _() -> Any:
    g, t = simple(), typed()
    g.nodes[[0, 2]].data["h"] = torch.ones(2, 2)
    return g.nodes(), g.nodes[[2, 1]].data["h"], t.nodes("g"), t.nodes["u"].data["h"], g.ndata["h"]


@check("g.dstnodes")
def _() -> Any:
    block = dgl.to_block(typed(), {"g": torch.tensor([1, 0]), "u": torch.tensor([0, 1, 2])})
    return block.dstnodes("g"), block.dstnodes["g"].data["_ID"], block.srcnodes["u"].data["_ID"]


@check("dgl.graph")
def _() -> Any:
    ends = (torch.tensor([0, 1]), torch.tensor([1, 2]))
    small = dgl.graph((torch.tensor([0], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)))
    return (
        dgl.graph(ends).edges(),
        dgl.graph(ends, num_nodes=7).num_nodes(),
        str(small.idtype),
        dgl.graph([(0, 1)]).edges(),
    )


@check("dgl.DGLGraph")
def _() -> Any:
    g = dgl.DGLGraph()
    g.add_nodes(3)
    g.add_edges([0, 1], [1, 2])
    return isinstance(simple(), dgl.DGLGraph), g.num_nodes(), g.edges()


@check("dgl.heterograph", "g.ntypes", "g.etypes", "g.canonical_etypes", "g.to_canonical_etype")
def _() -> Any:
    g = typed()
    return g.ntypes, g.etypes, g.canonical_etypes, g.to_canonical_etype("p"), simple().ntypes, simple().etypes


@check("g.is_homogeneous", "g.is_block")
def _() -> Any:
    block = dgl.to_block(simple())
    return simple().is_homogeneous, typed().is_homogeneous, simple().is_block, block.is_block


@check("g.idtype", "g.int", "g.long", "g.astype")
def _() -> Any:
    g = simple()
    return str(g.idtype), str(g.int().idtype), str(g.int().long().idtype), str(g.astype(torch.int32).idtype)


@check("g.local_scope")
def _() -> Any:
    g = simple()
    with g.local_scope():
        g.ndata["h"] = torch.zeros(5)
        g.ndata["x"] = torch.zeros(5)
    return sorted(g.ndata), g.ndata["h"]


@check("g.local_var", "g.clone")
def _() -> Any:
    g = simple()
    local, clone = g.local_var(), g.clone()
    local.ndata["x"], clone.ndata["y"] = torch.ones(5), torch.ones(5)
    return sorted(g.ndata), sorted(local.ndata), sorted(clone.ndata)


# ---------------------------------------------------------------- structure
@check("g.in_degrees", "g.out_degrees")
def _() -> Any:
    g = simple()
    return g.in_degrees(), g.out_degrees(), g.in_degrees([2, 0]), g.in_degrees(2), typed().in_degrees(etype="p")


@check("g.add_nodes", "g.add_edges")
def _() -> Any:
    g = simple()
    g.add_nodes(2, {"h": torch.ones(2, 2)})
    g.add_edges([5, 6], [0, 0])
    g.add_edges(0, torch.tensor([5, 6]), {"w": torch.ones(2, 1)})
    return g.num_nodes(), g.edges(), g.ndata["h"], g.edata["w"]


@check("g.remove_nodes", "g.remove_edges")
def _() -> Any:
    g = simple()
    g.remove_edges([0, 1])
    first = g.edges(), g.edata["w"]
    g.remove_nodes([1])
    return first, g.num_nodes(), g.edges(), g.ndata["h"]


@check("g.find_edges", "g.in_edges", "g.out_edges", "g.successors", "g.edge_ids", "g.has_edges_between")
def _() -> Any:
    g = simple()
    return (
        g.find_edges([4, 0]), g.in_edges([2, 0], form="all"), g.in_edges(2), g.out_edges([0], form="eid"),
        g.successors(0), g.predecessors(2), g.edge_ids([1, 3], [0, 3]), g.has_edges_between([0, 2], [2, 0]),
    )  # fmt: skip


@check("g.adj_external")
def _() -> Any:
    g = simple()
    found = g.adj_external(scipy_fmt="csr")
    return found.toarray().tolist(), g.adj_external(), g.adj_external(transpose=True)


@check("g.formats", "g.create_formats_")
def _() -> Any:
    g = simple()
    g.create_formats_()
    return sorted(g.formats()["created"]), g.formats("csc").num_edges()


@check("g.to_networkx", "dgl.from_networkx", "dgl.from_scipy")
def _() -> Any:
    g = simple()
    back = dgl.from_networkx(g.to_networkx())
    matrix = g.adj_external(scipy_fmt="coo")
    return sorted(zip(*plain(back.edges())[0][1:], strict=True)), dgl.from_scipy(matrix).edges()


@check("dgl.add_self_loop", "dgl.remove_self_loop")
def _() -> Any:
    g = dgl.remove_self_loop(simple())
    looped = dgl.add_self_loop(g)
    return g.edges(), g.edata["w"], looped.edges(), looped.edata["w"]


@check("dgl.to_bidirected", "dgl.to_simple", "dgl.reverse", "dgl.line_graph")
def _() -> Any:
    g = simple()
    small = dgl.to_simple(g)
    turned = dgl.reverse(g, copy_edata=True)
    acyclic = dgl.graph(([0, 1, 2, 0], [1, 2, 3, 2]))
    return (
        dgl.to_bidirected(g).edges(), small.edges(), small.edata["count"], turned.edges(), turned.edata["w"],
        dgl.line_graph(acyclic).edges(),
    )  # fmt: skip


@check("dgl.node_subgraph", "dgl.edge_subgraph", "dgl.in_subgraph", "dgl.khop_in_subgraph")
def _() -> Any:
    g = simple()
    a, b = dgl.node_subgraph(g, [2, 0, 1]), dgl.edge_subgraph(g, [2, 0])
    c = dgl.in_subgraph(g, [2])
    d, ids = dgl.khop_in_subgraph(g, 2, 1)
    return [(x.edges(), x.edata["_ID"]) for x in (a, b, c, d)], a.ndata["_ID"], b.ndata["h"], d.ndata["_ID"], ids


@check("dgl.to_block")
def _() -> Any:
    block = dgl.to_block(simple(), torch.tensor([3, 2, 0]))
    return block.edges(), block.srcdata["_ID"], block.dstdata["_ID"], block.edata["_ID"]


@check("dgl.to_homogeneous", "dgl.to_heterogeneous", "dgl.NTYPE", "dgl.ETYPE", "dgl.NID", "dgl.EID")
def _() -> Any:
    g = typed()
    whole = dgl.to_homogeneous(g)
    back = dgl.to_heterogeneous(whole, g.ntypes, g.etypes)
    return (
        whole.edges(), whole.ndata[dgl.NTYPE], whole.edata[dgl.ETYPE], whole.ndata[dgl.NID], whole.edata[dgl.EID],
        back.canonical_etypes, back.edges(etype="p"),
    )  # fmt: skip


@check("dgl.bfs_nodes_generator", "dgl.topological_nodes_generator")
def _() -> Any:
    g = dgl.graph(([0, 0, 1, 2, 3], [1, 2, 3, 3, 4]))
    return list(dgl.bfs_nodes_generator(g, 0)), list(dgl.topological_nodes_generator(g))


@check("dgl.rand_graph", "dgl.seed")
def _() -> Any:
    dgl.seed(3)
    first = dgl.rand_graph(10, 20).edges()
    dgl.seed(3)
    second = dgl.rand_graph(10, 20).edges()
    return first[0].shape[0], bool((first[0] == second[0]).all()), bool((first[1] < 10).all())


@check("dgl.__version__")
def _() -> Any:
    return [int(part) for part in dgl.__version__.split("+")[0].split(".")[:2]]


def results() -> dict[str, Any]:
    """What every check gives; what an error says, where it raises one."""
    found: dict[str, Any] = {}
    for name, function in CHECKS.items():
        if name in (*checks_messages.ONLY_HERE, *checks_beyond.ONLY_HERE) and "vgraph" not in dgl.__version__:
            continue
        try:
            found[name] = plain(function())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    print(json.dumps(results(), sort_keys=True))
