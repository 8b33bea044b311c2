"""Arrays and graphs that processes of one machine share by name.

Takes: shapes, or a graph. Gives: tensors over one memory; the graph in another process. Runs once per process.
Engine: files of the system's memory (``/dev/shm``), mapped by torch; where there is none, of the temporary folder.
Who made a file removes it when its tensor is gone; whoever has mapped it keeps the memory.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import stat
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from vgraph.errors import DataError, GraphError, NameLookupError
from vgraph.graphs.edge_formats import check_ends
from vgraph.graphs.frame import Frame
from vgraph.graphs.types import EdgeType
from vgraph.ir.topology import Topology

__all__ = [
    "create_shared_mem_array",
    "get_shared_mem_array",
    "hetero_from_shared_memory",
]

_ALIGNED = 64  # bytes; ids of any width begin there
_IDS = {"int32": torch.int32, "int64": torch.int64}


def create_shared_mem_array(name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros that other processes get by their name as long as this tensor lives; what had the name has it no more."""
    return _made(name, torch.Size(shape).numel() * dtype.itemsize).view(dtype).view(*shape)


def get_shared_mem_array(name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The array that another process has made under this name.

    Raises:
        NameLookupError: there is none.
        DataError: it has another size, or belongs to another user.
    """
    found, wanted = _mapped(name), torch.Size(shape).numel() * dtype.itemsize
    if found.numel() != max(wanted, 1):
        fact = f"the shared array {name!r} has {found.numel()} bytes where {wanted} are asked for"
        raise DataError(fact, cure="ask for the shape and the dtype that it was made with")
    return found[:wanted].view(dtype).view(*shape)


def _path_of(name: str) -> Path:
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        fact = f"{name!r} names no shared memory"
        raise NameLookupError(fact, cure="use letters, digits, '-', '_' and '.'")
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"vgraph-{getpass.getuser()}-{name}"


def _made(name: str, num_bytes: int) -> Tensor:
    """Bytes of zeros; the name is theirs from now on, and the memory of whoever had it before is not written to."""
    path = _path_of(name)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with open(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.truncate(max(num_bytes, 1))
        number = os.fstat(file.fileno()).st_ino
    made = torch.from_file(str(fresh), shared=True, size=max(num_bytes, 1), dtype=torch.uint8)
    fresh.replace(path)
    weakref.finalize(made.untyped_storage(), _remove, path, number, os.getpid())
    return made[:num_bytes]


def _remove(path: Path, number: int, process: int) -> None:
    """Takes away the name, unless it is another's by now; a forked child has not made it."""
    if os.getpid() == process and path.exists() and path.stat().st_ino == number:
        path.unlink()


def _mapped(name: str) -> Tensor:
    path = _path_of(name)
    try:
        found = path.lstat()
    except OSError:
        raise NameLookupError(
            f"no process shares {name!r}", cure="make it first, and keep what was made until others have got it"
        ) from None
    if not stat.S_ISREG(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        raise DataError(f"the shared memory {name!r} belongs to somebody else", cure="use another name")
    return torch.from_file(str(path), shared=True, size=found.st_size, dtype=torch.uint8)


def shared_by_all(
    name: str, shape: Sequence[int], dtype: torch.dtype, make: Callable[[Tensor], Tensor] | None, rank: int = 0
) -> Tensor:
    """One array of all processes of the group: process ``rank`` makes it, and then ``make`` fills it."""
    unique = f"{name}-{vd.agreed_seed():x}"
    made = create_shared_mem_array(unique, shape, dtype) if vd.rank() == rank else None
    if made is not None and make is not None:
        filled = make(made)
        if filled is not made:
            made.copy_(filled)
    vd.barrier()
    found = get_shared_mem_array(unique, shape, dtype) if made is None else made
    vd.barrier()  # all have it: the name may go whenever its maker does
    return found


# ---------------------------------------------------------------- graphs
def shared_memory(g: vgraph.Graph, name: str, formats: str | Sequence[str] = ("coo", "csr", "csc")) -> vgraph.Graph:
    """The graph without features, its edges in memory that other processes get by a name as long as it lives.

    ``formats``: words of "coo", "csr" and "csc"; each process makes the others of the edges when it needs them.

    Raises:
        GraphError: the graph is a block, or a word is no format.
    """
    if g.is_block:
        raise GraphError("a block is not shared by name", cure="share its graph, or block_to_graph(block)")
    g.formats(formats)
    head = json.dumps(
        {
            "nodes": [[t, g.num_nodes(t)] for t in g.ntypes],
            "edges": [[*t, g.num_edges(t)] for t in g.canonical_etypes],
            "idtype": str(g.idtype).removeprefix("torch."),
        }
    ).encode()
    ids = torch.cat([end for t in g.canonical_etypes for end in (g.relation(t)[0].src, g.relation(t)[0].dst)]).cpu()
    begin = -(-(8 + len(head)) // _ALIGNED) * _ALIGNED
    memory = _made(name, begin + ids.numel() * ids.itemsize)
    memory[:8] = torch.tensor([len(head)]).view(torch.uint8)
    memory[8 : 8 + len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    memory[begin:].view(ids.dtype).copy_(ids)
    return _graph_in(memory, name)


def hetero_from_shared_memory(name: str) -> vgraph.Graph:
    """The graph that another process, or this one, shares under a name; without features.

    Raises:
        NameLookupError: there is none.
        DataError: what has the name is no graph.
    """
    return _graph_in(_mapped(name), name)


def _graph_in(memory: Tensor, name: str) -> vgraph.Graph:
    fault = DataError(f"the shared memory {name!r} holds no graph", cure="share a graph under this name")
    size = int(memory[:8].view(torch.int64)) if memory.numel() >= 8 else -1
    if not 0 < size <= memory.numel() - 8:
        raise fault
    try:
        head: Any = json.loads(bytes(memory[8 : 8 + size].numpy()))
        nodes = {str(t): int(count) for t, count in head["nodes"]}
        edges: dict[EdgeType, int] = {(str(s), str(e), str(d)): int(count) for s, e, d, count in head["edges"]}
        dtype = _IDS[head["idtype"]]
    except (ValueError, TypeError, KeyError) as error:
        raise fault from error
    begin = -(-(8 + size) // _ALIGNED) * _ALIGNED
    is_whole = memory.numel() - begin == 2 * sum(edges.values()) * dtype.itemsize
    if not edges or not is_whole or min(*nodes.values(), *edges.values()) < 0:
        raise fault
    parts = memory[begin:].view(dtype).split([count for count in edges.values() for _ in range(2)])
    topologies: dict[EdgeType, Topology] = {}
    for etype, src, dst in zip(edges, parts[::2], parts[1::2], strict=True):
        if etype[0] not in nodes or etype[2] not in nodes:
            raise fault
        check_ends(src, dst, nodes[etype[0]], nodes[etype[2]])
        topologies[etype] = Topology(src, dst, nodes[etype[0]], nodes[etype[2]])
    names = {t: t if len(nodes) > 1 else "" for t in nodes}
    frames = {t: Frame(count, memory.device, "node", type_name=names[t]) for t, count in nodes.items()}
    return vgraph.Graph.of_types(topologies, frames)
