"""Topology: who is joined to whom; index tensors only.

Takes: COO ids. Gives: CSC and CSR on demand, kept; the reverse. Runs once per topology.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.halo import Halo
from vgraph.ir.upload import send
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

T = TypeVar("T")
Ends: TypeAlias = tuple[Tensor, Tensor]  # ids of sources and of destinations


@contextmanager
def lasting() -> Generator[None]:
    """What is kept may be part of a backward later, though inference mode is on when it is made."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


@dataclass(frozen=True, eq=False)
class Compressed:
    """Edges grouped by one end: ``ptr`` (rows + 1), ``other`` end's ids and ``edge_ids``, each (edges,).

    Within a group the edges keep their order of ids. ``edge_ids`` is None where it is 0, 1, 2 ...
    """

    ptr: Tensor
    other: Tensor
    edge_ids: Tensor | None


@dataclass(frozen=True, eq=False)
class Topology:
    """Directed edges ``src[i] -> dst[i]`` between ``num_src`` and ``num_dst`` vertices.

    ``graph_sizes`` counts the vertices of every graph of a batch; ``parts`` are the topologies
    that were batched. ``original_ids``: of a part of a graph, the ids of "vertex" (destinations) and
    "edge" in the whole, where they are others; where other processes have the rest of it, of "src", too.
    ``given_idtype``: of ids as users know them, where they are stored here in fewer bits.
    ``host``: the same on the CPU, where it came from there. ``halo``: where rows of sources are not all here, how
    they come here. ``src`` and ``dst`` may have been given back (``give_back``): whoever asks for them waits.
    """

    src: Tensor
    dst: Tensor
    num_src: int
    num_dst: int
    graph_sizes: tuple[int, ...] | None = None
    parts: tuple[Topology, ...] | None = None
    original_ids: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    host: Topology | None = None
    halo: Halo | None = None
    given_idtype: torch.dtype | None = None
    number: int = field(default_factory=lambda: next(_numbers), init=False, repr=False)  # of this process alone
    num_edges: int = field(init=False, repr=False)
    device: torch.device = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _by_number[self.number] = self
        vars(self).update(num_edges=self.src.shape[0], device=self.src.device)
        _ = self.handle  # made now: Dynamo may only read it

    @cached_property
    @lasting()
    def handle(self) -> Tensor:
        """(): stands for the topology where only tensors may go."""
        return torch.tensor(self.number, device="cpu")

    def __getstate__(self) -> dict[str, object]:
        own = ("number", "handle", "kept", "_turned_from", "num_edges", "device", "_again")
        known: dict[str, object] = {**self.__dict__, "src": self.src, "dst": self.dst}
        return {name: value for name, value in known.items() if name not in own}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, number=next(_numbers))
        self.__post_init__()

    @property
    def idtype(self) -> torch.dtype:
        """The dtype of ids as users know them: that of the whole graph where this is a process's part of one."""
        return self.given_idtype or self.original_ids.get("src", self.src).dtype

    @property
    def num_own_sources(self) -> int:
        """Sources of which features have rows: all, or where there is a halo those before it."""
        return self.num_src if self.halo is None else self.halo.num_own

    @property
    def on_host(self) -> Topology:
        """The same with ids on the CPU, where schedules are made; ids that never were there are waited for."""
        return self if self.device.type == "cpu" else self.keep("on host", lambda: self.host or self._copied())

    def stored(self, src: Tensor, dst: Tensor) -> Topology:
        """The same with its ids on another device, or of another dtype."""
        host = self if self.device.type == "cpu" else self.host
        return replace(self, src=src, dst=dst, host=None if src.device.type == "cpu" else host)

    def _copied(self) -> Topology:
        given = (self.num_src, self.num_dst, self.graph_sizes)
        return Topology(self.src.cpu(), self.dst.cpu(), *given, given_idtype=self.given_idtype)

    def give_back(self, again: Callable[[], Ends]) -> None:
        """Lets go of ``src`` and ``dst``: ``again`` makes them when somebody asks, and then they are kept.

        Once: whoever has asked may ask at every step.
        """
        vars(self)["_again"] = again  # first: another thread may ask meanwhile
        for name in ("src", "dst"):
            vars(self).pop(name, None)

    @property
    def was_given_back(self) -> bool:
        return "_again" in vars(self)

    def ends_for_now(self) -> Ends:
        """``src`` and ``dst``, for who asks but once: where they were given back they are made and not kept."""
        own = vars(self)
        src, dst = own.get("src"), own.get("dst")
        return own["_again"]() if src is None or dst is None else (src, dst)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor:
            """Ends that were given back; whatever else is asked for is here, or nowhere."""
            if name not in ("src", "dst") or not self.was_given_back:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            with lasting():
                ends = dict(zip(("src", "dst"), self.ends_for_now(), strict=True))
            vars(self).update(ends)
            return ends[name]

    @cached_property
    def kept(self) -> dict[Hashable, Any]:
        """What was derived from this topology, by key: schedules, degree buckets ..."""
        return {}

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value derived under ``key``, made at the first call."""
        if key not in self.kept:
            with lasting():
                self.kept[key] = make()
        return self.kept[key]

    def keep_in_lists(self, ptr: Tensor) -> None:
        """What whoever made this knows: its edges come destination by destination, whose own begin at ``ptr``."""
        vars(self).update(csc=Compressed(ptr, self.src, None), in_degrees=ptr.diff())

    @cached_property
    @lasting()
    def csc(self) -> Compressed:
        """In-edges of every destination."""
        origin = self._origin
        return compress(self.dst, self.src, self.num_dst) if origin is None else origin.csr

    @cached_property
    @lasting()
    def csr(self) -> Compressed:
        """Out-edges of every source."""
        origin = self._origin
        return compress(self.src, self.dst, self.num_src) if origin is None else origin.csc

    @cached_property
    @lasting()
    def in_degrees(self) -> Tensor:
        return self._counted("in_degrees", self.dst, self.num_dst)

    @cached_property
    @lasting()
    def out_degrees(self) -> Tensor:
        return self._counted("out_degrees", self.src, self.num_src)

    def _counted(self, name: str, ends: Tensor, count: int) -> Tensor:
        """A GPU would be waited for: where the CPU knows the ids it counts."""
        known = self.host
        return torch.bincount(ends, minlength=count) if known is None else send(getattr(known, name), ends.device)

    @property
    def reversed(self) -> Topology:
        """The same vertices with every edge turned round; edge ids stay.

        The reverse of a reverse is what it was made of, as long as that is there: it holds its reverse, which holds
        it weakly.
        """
        origin = self._origin
        return self._turned if origin is None else origin

    @property
    def _origin(self) -> Topology | None:
        """What this is the reverse of, as long as that is there."""
        origin: ReferenceType[Topology] | None = self.__dict__.get("_turned_from")
        return None if origin is None else origin()

    @cached_property
    def _turned(self) -> Topology:
        parts = None if self.parts is None else tuple(part.reversed for part in self.parts)
        host = None if self.device.type == "cpu" else self.on_host.reversed
        given = (self.num_dst, self.num_src, self.graph_sizes, parts)
        turned = Topology(self.dst, self.src, *given, host=host, given_idtype=self.given_idtype)
        turned.__dict__["_turned_from"] = ref(self)
        return turned

    @cached_property
    @lasting()
    def graph_ids(self) -> Tensor:
        """The graph of every vertex, (num_dst,)."""
        sizes = torch.tensor(self.graph_sizes or (self.num_dst,), dtype=torch.int64, device="cpu")
        return send(torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), sizes), self.device)

    def groups(self, of_edges: bool) -> Topology:
        """The graphs of a batch as ends of their vertices, or of their edges: one each."""

        def make() -> Topology:
            ids = self.graph_ids.index_select(0, self.dst) if of_edges else self.graph_ids
            number = len(self.graph_sizes or (self.num_dst,))
            return Topology(ids, ids, number, number)

        return self.keep("graphs of edges" if of_edges else "graphs of vertices", make)


_numbers = count()
_by_number: WeakValueDictionary[int, Topology] = WeakValueDictionary()


def topology_of(handle: Tensor) -> Topology:
    """The topology that a handle stands for, which must still be there."""
    topology = _by_number[int(handle)]
    vars(handle)["topology"] = topology  # it lives as long as a backward that was given the handle
    return topology


def stable_argsort(keys: Tensor, num_keys: int) -> Tensor:
    """The order that sorts ``keys`` (below ``num_keys``), equal ones as they stand.

    Few keys on a CPU are sorted by NumPy's radix sort, many by counting (the rows of a sparse matrix with
    one element a key, which costs a third of torch's sort).
    """
    count = keys.shape[0]
    if keys.device.type != "cpu" or count >= 2**31 or (count >= 1 << 14 and num_keys > count):
        return torch.argsort(keys, stable=True)
    if count < 1 << 14:
        if num_keys <= 1 << 16:
            return torch.from_numpy(np.argsort(keys.numpy().astype(np.uint16), kind="stable"))
        return torch.argsort(keys, stable=True)
    return torch.from_numpy(counting_order(keys.numpy(), num_keys).astype(np.int64))


def counting_order(keys: NDArray[np.integer], num_keys: int) -> NDArray[np.int32]:
    """``stable_argsort`` of many keys, fewer than 2^31, as 32-bit numbers."""
    count = len(keys)
    ones, rows = np.ones(count, np.int8), keys.astype(np.int32, copy=False)
    counted = sparse.coo_array((ones, (rows, np.arange(count, dtype=np.int32))), shape=(num_keys, count)).tocsr()
    return counted.indices.astype(np.int32, copy=False)


def short_order(keys: NDArray[np.integer], num_keys: int) -> NDArray[np.integer]:
    """``stable_argsort`` in as few bits as it takes, on the CPU."""
    if 1 << 14 <= len(keys) < 2**31 and num_keys <= len(keys):
        return counting_order(keys, num_keys)
    return stable_argsort(torch.from_numpy(keys), num_keys).numpy()


def compress(group: Tensor, other: Tensor, num_groups: int) -> Compressed:
    """Groups edges by ``group`` (edges,), stably; already sorted edges are not moved."""
    counts = torch.bincount(group, minlength=num_groups)
    ptr = torch.zeros(num_groups + 1, dtype=torch.int64, device=group.device)
    torch.cumsum(counts, 0, out=ptr[1:])
    if group.shape[0] < 2 or bool((group[1:] >= group[:-1]).all()):
        return Compressed(ptr, other, None)
    edge_ids = stable_argsort(group, num_groups)
    return Compressed(ptr, other.index_select(0, edge_ids), edge_ids)
