"""Edges as users give them, checked: pairs of ends, compressed rows, lists of pairs, SciPy's matrices.

Takes: ids in any of these forms. Gives: a Topology. Runs once per sample.
Source: DGL section 3; the forms are those that its programs use.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, whole
from vgraph.errors import DeviceError, DTypeError, GraphError
from vgraph.graphs.frame import as_ids, refuse_meta
from vgraph.graphs.types import Device
from vgraph.ir.topology import Topology
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

MAX_INT32 = 2**31 - 1
MOST_NODES = 2**40  # one number each takes 8 TiB
ROWS = whole(0, MOST_NODES)  # of nodes, or of edges
MOST_BY_IDS = 2**28  # nodes that nobody counted: one number each takes 2 GiB
NODES_AN_ID = 64  # or so many for every id that is given
IDTYPES = (torch.int64, torch.int32)


def read_edges(data: object, device: Device = None) -> tuple[Tensor, Tensor]:
    """Sources and destinations, each (num_edges,), in order of edge ids; GraphError: they do not fit."""
    src, dst = (as_ids(end, name) for end, name in zip(_ends(data), ("src", "dst"), strict=True))
    _check_pair(src, dst, device)
    return src, dst


def make_topology(
    ends: tuple[Tensor, Tensor],
    num_src: int,
    num_dst: int,
    idtype: torch.dtype | None,
    device: torch.device | str | None,
) -> Topology:
    """A Topology of checked ends; copied, so that writing into the caller's tensors cannot break it."""
    src, dst = ends
    both = torch.int32 if src.dtype == dst.dtype == torch.int32 else torch.int64
    dtype = check_idtype(both if idtype is None else idtype, max(num_src, num_dst), src.shape[0])
    check_device(src.device if device is None else device)
    place = src.device if device is None else torch.device(device)
    order = torch.contiguous_format
    src, dst = (end.to(place, dtype, copy=True, memory_format=order) for end in (src, dst))
    return Topology(src, dst, num_src, num_dst)


def _ends(data: object) -> tuple[object, object]:
    if isinstance(data, Tensor) and data.layout != torch.strided:
        return _stored_places(data)
    # a list of two could be edges as well as ends
    if isinstance(data, (Tensor, np.ndarray)) and data.ndim == 2 and len(data) == 2:
        return data[0], data[1]
    if isinstance(data, tuple) and len(data) == 2:
        return _from_format(*data) if isinstance(data[0], str) else data
    if isinstance(data, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in data):
        pairs = list(data)
        return [u for u, _ in pairs], [v for _, v in pairs]
    if sparse.issparse(data):
        entries = sparse.coo_matrix(data)
        return entries.row.astype(np.int64), entries.col.astype(np.int64)
    fact = f"edges are given as a {type(data).__name__}, not as a pair of ends"
    raise GraphError(fact, cure="pass (src, dst)")


def _stored_places(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every entry that a sparse matrix of torch's stores; what is stored twice is one entry."""
    if matrix.ndim != 2 or matrix.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        fact = f"edges are given as a tensor of {matrix.ndim} dims in {matrix.layout}"
        raise GraphError(fact, cure="pass a sparse matrix (nodes, nodes) in COO, CSR or CSC form")
    row, column = matrix.detach().to_sparse_coo().coalesce().indices()
    return row, column


def _from_format(name: str, parts: object) -> tuple[object, object]:
    """("coo", (src, dst)), or ("csr" | "csc", (indptr, indices, edge ids))."""
    given = parts if isinstance(parts, (tuple, list)) else ()
    if name == "coo" and len(given) == 2:
        return given[0], given[1]
    if name not in ("csr", "csc") or len(given) != 3:
        fact = f"edges are given as {name!r} of {len(given)} arrays"
        cure = 'pass ("coo", (src, dst)) or ("csr", (indptr, indices, edge_ids))'
        raise GraphError(fact, cure=cure)
    ptr, other, ids = (as_ids(part, f"{name} {what}") for part, what in zip(given, _PARTS, strict=True))
    # compared, not subtracted: differences of int32 wrap around
    is_ascending = not bool((ptr[1:] < ptr[:-1]).any())
    if ptr.numel() == 0 or int(ptr[0]) != 0 or int(ptr[-1]) != other.shape[0] or not is_ascending:
        fact = f"{name} indptr does not ascend from 0 to the {other.shape[0]} indices"
        raise GraphError(fact, cure="pass one pointer a row and one more")
    counts = ptr[1:] - ptr[:-1]
    own = torch.repeat_interleave(torch.arange(counts.shape[0], dtype=other.dtype, device=other.device), counts)
    if ids.numel():
        numbers = torch.arange(len(ids), dtype=ids.dtype, device=ids.device)
        if ids.shape != other.shape or not bool((torch.sort(ids).values == numbers).all()):
            fact = f"{name} edge ids do not number the {other.shape[0]} edges"
            raise GraphError(fact, cure="pass every number from 0 once, or an empty list")
        places = torch.empty_like(ids).scatter_(0, ids.long(), numbers).long()
        own, other = own[places], other[places]
    return (own, other) if name == "csr" else (other, own)


_PARTS = ("indptr", "indices", "edge ids")


def _check_pair(src: Tensor, dst: Tensor, device: Device) -> None:
    if src.shape != dst.shape:
        longer, first = ("src", len(dst)) if len(src) > len(dst) else ("dst", len(src))
        fact = f"src has {len(src)} ids and dst has {len(dst)}: edge {first} has only a {longer}"
        raise GraphError(fact, cure="give every edge a src and a dst")
    if src.device != dst.device and device is None:
        fact = f"src is on {src.device} and dst on {dst.device}"
        raise GraphError(fact, cure="move one of them, or pass device=")
    for end, name in ((src, "src"), (dst, "dst")):
        refuse_meta(end, name)


def count_nodes(ends: tuple[Tensor, Tensor], num_nodes: object) -> int:
    """The number of nodes; GraphError names the first edge with an id outside."""
    return check_count(num_nodes, num_nodes_of(ends) if num_nodes is None else 0, ends)


def num_nodes_of(ends: tuple[Tensor, ...]) -> int:
    """One more than the largest id; GraphError: it is far larger than the number of ids makes likely."""
    found = max((int(end.max()) + 1 for end in ends if end.numel()), default=0)
    check_likely(found, found - 1, sum(end.shape[0] for end in ends), "pass num_nodes")
    return found


def check_likely(count: int, largest: int, given: int, cure: str) -> None:
    """GraphError: so many nodes would be there because of the largest of some ids."""
    if count > max(MOST_BY_IDS, NODES_AN_ID * given):
        fact = f"the largest of {given} ids is {largest}, which makes {count} nodes"
        raise GraphError(fact, cure=f"number the nodes 0, 1, 2, ..., or {cure}")


def check_count(num_nodes: object, least: int, ends: tuple[Tensor, Tensor]) -> int:
    """``num_nodes``, or ``least`` where it is None; GraphError names the first edge with an id outside."""
    if not COUNT.or_none().accepts(num_nodes):
        fact = f"num_nodes is {num_nodes!r}"
        raise GraphError(fact, cure="pass a whole number from 0 up")
    count = least if num_nodes is None else index(num_nodes)  # pyright: ignore[reportArgumentType]
    if count > MOST_NODES:
        fact = f"num_nodes is {count}, above {MOST_NODES}"
        raise GraphError(fact, cure="number the nodes 0, 1, 2, ...")
    check_ends(*ends, count, count)
    return count


def number_pairs(src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> Tensor:
    """A number for the two ends of every edge, int64, which grows with the source, then with the destination.

    GraphError: so many ends have more pairs than int64 can number.
    """
    if num_src * num_dst > 2**63 - 1:
        fact = f"{num_src} times {num_dst} nodes make more pairs than int64 can number"
        raise GraphError(fact, cure="number those that have edges 0, 1, 2, ..., as vgraph.compact_graphs does")
    return src.long() * num_dst + dst.long()


def check_ends(src: Tensor, dst: Tensor, num_src: int, num_dst: int, word: str = "nodes") -> None:
    """GraphError names the first edge with an id outside."""
    for end, count in ((src, num_src), (dst, num_dst)):
        if end.numel():
            low, high = torch.aminmax(end)
            if int(low) < 0 or int(high) >= count:
                raise _wrong_edge(src.cpu().long(), dst.cpu().long(), num_src, num_dst, word)


def _wrong_edge(src: Tensor, dst: Tensor, num_src: int, num_dst: int, word: str) -> GraphError:
    outside = [(end < 0) | (end >= count) for end, count in ((src, num_src), (dst, num_dst))]
    edge = int((outside[0] | outside[1]).nonzero()[0])
    name, end, count = ("src", src, num_src) if outside[0][edge] else ("dst", dst, num_dst)
    value, there = int(end[edge]), f" where there are {count} {word}"
    fact = f"{name} of edge {edge} is {value}" + ("" if value < 0 else there)
    cure = f"pass num_nodes={value + 1} or more, or correct the id"
    cure = "number the nodes 0, 1, 2, ..." if value < 0 else cure
    return GraphError(fact, cure=cure)


def check_idtype(idtype: torch.dtype, num_nodes: int, num_edges: int) -> torch.dtype:
    """The dtype itself; DTypeError: it is not for ids; GraphError: there are too many of them."""
    if not isinstance(idtype, torch.dtype) or idtype not in IDTYPES:  # pyright: ignore[reportUnnecessaryIsInstance]
        fact = f"idtype is {idtype}"
        raise DTypeError(fact, cure="pass torch.int64 or torch.int32")
    if idtype == torch.int32 and max(num_nodes, num_edges) > MAX_INT32:
        fact = f"{num_nodes} nodes and {num_edges} edges cannot be numbered in int32"
        raise GraphError(fact, cure="use idtype=torch.int64")
    return idtype


def check_device(device: torch.device | str | int, what: str = "the graph") -> None:
    """DeviceError: it is a GPU that torch does not find here, or no device at all."""
    try:
        wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        fact, cure = f"{device!r} is no device", 'pass "cpu", "cuda" or "cuda:1"'
        raise DeviceError(fact, cure=cure) from error
    if wanted.type != "cuda" or (wanted.index or 0) < torch.cuda.device_count():
        return
    built, count = torch.version.cuda, torch.cuda.device_count()
    found = f"was built for CUDA {built} and finds {count} GPUs" if built else "was built without CUDA"
    cure = "stay on the CPU, or see `vgraph info` for what a GPU needs here"
    raise DeviceError(f"{what} is to lie on {wanted}, but torch {torch.__version__} {found}", cure=cure)
