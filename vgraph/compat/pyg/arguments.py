"""What PyG's message, aggregate, update and edge_update ask for, as rows of nodes and edges.

Takes: a layer and what propagate was given. Gives: a Topology, tensors by kind, and what stands for each argument
while the functions are recorded. Runs at every call. Source: PyG, ``MessagePassing._collect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter
from operator import is_
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vgraph.api.messages.indexed import is_plain_tensor
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg.call import Call, What
from vgraph.compat.pyg.deferred import DeferredRows
from vgraph.compat.pyg.layer_types import Given, Inspector, Layer, Size
from vgraph.compat.pyg.topologies import topology_of

_IDS = {"index": "i", "edge_index_i": "i", "edge_index_j": "j"}
_SIZES = {"size_i": "i", "dim_size": "i", "size_j": "j"}
_PLAIN = (type(None), bool, str, torch.dtype)


def collect(
    layer: Layer,
    edge_index: Tensor,
    size: Size,
    given: Given,
    functions: Sequence[str],
    prefix: str,
    *,
    by_template: bool,
    holder: Tensor | None,
) -> Call:
    """The arguments of some functions of a layer.

    ``prefix``: of the names that tensors have in this call; ``by_template``: whether PyG would collect them in code
    that it prints for the class of the layer, which reads pairs in another way than its general function does;
    ``holder``: the EdgeIndex whose ids these are; None: the layer was given them in a plain tensor or a sparse matrix.

    Raises:
        CaptureError: PyG must look at them itself.
    """
    collector = _Collector(layer, edge_index, size, given, functions, prefix, by_template=by_template, holder=holder)
    return collector.collect()


@dataclass(frozen=True, eq=False)
class _Asked:
    """What functions of a layer ask for, as PyG has inspected them.

    ``ends``: of one end of edges; ``of_edges``: arguments whose rows, as many as nodes and edges, are those of edges.
    """

    inspected: tuple[dict[str, Parameter], ...]
    names: dict[str, tuple[str, ...]]
    parameters: dict[str, Parameter]
    special: frozenset[str]
    ends: tuple[str, ...]
    of_edges: frozenset[str]


_asked: WeakKeyDictionary[Inspector, dict[tuple[str, ...], _Asked]] = WeakKeyDictionary()


def _asked_by(layer: Layer, functions: tuple[str, ...]) -> _Asked:
    """Found once, until PyG inspects the layer anew or its arguments of its own change."""
    inspector = layer.inspector
    inspected = tuple([inspector.get_param_dict(f) for f in functions])
    known = _asked.setdefault(inspector, {})
    found = known.get(functions)
    if found is None or found.special != layer.special_args or not all(map(is_, found.inspected, inspected)):
        found = known[functions] = _ask(functions, inspected, frozenset(layer.special_args))
    return found


def _ask(functions: tuple[str, ...], inspected: tuple[dict[str, Parameter], ...], special: frozenset[str]) -> _Asked:
    parameters = {name: one for asked in inspected for name, one in asked.items()}
    names = {f: tuple(asked) for f, asked in zip(functions, inspected, strict=True)}
    ends = tuple(name for name in parameters if name not in special and name[-2:] in ("_i", "_j"))
    of_edges = frozenset(name for f, asked in names.items() if f != "update" for name in asked)
    return _Asked(inspected, names, parameters, special, ends, of_edges)


def _lasting(rows: Tensor) -> Tensor:
    """Rows that a backward may keep, as it may keep what PyG makes of them for each edge: of inference mode a copy."""
    return rows.clone() if rows.is_inference() and torch.is_grad_enabled() else rows


class _Collector:
    def __init__(
        self,
        layer: Layer,
        edge_index: Tensor,
        size: Size,
        given: Given,
        functions: Sequence[str],
        prefix: str,
        *,
        by_template: bool,
        holder: Tensor | None,
    ) -> None:
        self.prefix, self.by_template, self.holder = prefix, by_template, holder
        self.layer, self.edge_index, self.given = layer, edge_index, given
        self.forward = layer.flow == "source_to_target"
        self.dims = {"j": 0, "i": 1} if self.forward else {"j": 1, "i": 0}
        self.size: list[int | None] = list(size)
        self.asked = _asked_by(layer, tuple(functions))
        self.names = self.asked.names
        if edge_index.layout != torch.strided:
            self.given = self._with_values(edge_index)

    def collect(self) -> Call:
        ends = {name: self._of_end(name) for name in self.asked.ends}
        num_dst, num_src = self._size("i"), self._size("j")
        topology = topology_of(self.edge_index, num_src, num_dst, forward=self.forward, holder=self.holder)
        call = Call(topology, names=self.names)
        for name, parameter in self.asked.parameters.items():
            if name in self.asked.special:
                call.whats[name] = self._special(name, call.topology.idtype)
            elif name in ends:
                self._add_end(call, name, ends[name])
            elif name in self.given:
                call.whats[name] = self._passed(call, name, self.given[name], name in self.asked.of_edges)
            elif parameter.default is Parameter.empty:
                raise CaptureError(f"it asks for {name!r}, which it was not given")
        return call

    def _with_values(self, adjacency: Tensor) -> Given:
        """The entries of a sparse matrix are the first of these that functions ask for; each, by PyG's general way."""
        names = [name for name in ("edge_weight", "edge_attr", "edge_type") if name in self.asked.parameters]
        missing = [name for name in (names[:1] if self.by_template else names) if self.given.get(name) is None]
        values = adjacency.values() if missing else None
        is_narrow = values is not None and values.dim() == 1
        return {**self.given, **{name: None if name == "edge_attr" and is_narrow else values for name in missing}}

    def _size(self, end: str) -> int:
        other = "j" if end == "i" else "i"
        size = self.size[self.dims[end]]
        size = self.size[self.dims[other]] if size is None else size
        if size is None:
            raise CaptureError("it is not given how many nodes there are")
        return int(size)

    # ------------------------------------------------------------ arguments of one end
    def _of_end(self, name: str) -> object:
        """The rows of one end; notes how many nodes either end has.

        Whatever the flow, printed code reads the first of a pair for ``_j`` and None for what is no tensor.
        """
        data, dim = self.given.get(name[:-2]), self.dims[name[-1]]
        if isinstance(data, (tuple, list)):
            if len(data) != 2:
                raise CaptureError(f"{name[:-2]!r} is not a pair")
            for place, rows in enumerate(data):
                self._note_size(rows, place)
            data = data["ji".index(name[-1]) if self.by_template else dim]
        else:
            self._note_size(data, dim)
        return data if isinstance(data, Tensor) or not self.by_template else None

    def _note_size(self, data: object, dim: int) -> None:
        if not isinstance(data, Tensor):
            return
        self._check(data)
        at, num_dims = self.layer.node_dim, data.dim()
        if not -num_dims <= at < num_dims or at % num_dims != 0:
            raise CaptureError("the rows of nodes are not the leading dim")
        if self.size[dim] not in (None, data.shape[0]):
            raise CaptureError("sizes differ")
        self.size[dim] = data.shape[0]

    def _add_end(self, call: Call, name: str, data: object) -> None:
        if not isinstance(data, Tensor):
            call.whats[name] = self._constant(call, name, data)
            return
        kind = "src" if name[-1] == "j" else "dst"
        count = call.topology.num_src if kind == "src" else call.topology.num_dst
        if data.shape[0] != count:
            raise CaptureError("sizes differ")
        own = self.prefix + name[:-2]
        call.rows[kind][own] = _lasting(data)
        call.whats[name] = ("at", kind, own)

    # ------------------------------------------------------------ all others
    def _special(self, name: str, idtype: torch.dtype) -> What:
        if name in _IDS:
            return "ids", "dst" if _IDS[name] == "i" else "src", idtype
        if name in _SIZES:
            return "count", "dst" if _SIZES[name] == "i" else "src"
        if name == "ptr":  # edges are in no order
            return "constant", type(None), None
        if name == "size":
            both = (("count", "dst" if self.dims["i"] == dim else "src") for dim in (0, 1))
            return "several", list, tuple(both)
        if name != "edge_index" or self.holder is not None or self.edge_index.layout != torch.strided:
            raise CaptureError(f"it asks for {name}, which is a sparse matrix or an EdgeIndex")
        return "both ids", *(("src", "dst") if self.forward else ("dst", "src")), idtype

    def _passed(self, call: Call, name: str, value: object, of_edges: bool) -> What:
        if type(value) in (tuple, list):
            inner = (
                self._passed(call, f"{name}.{i}", part, of_edges)
                for i, part in enumerate(cast("Sequence[object]", value))
            )
            return "several", type(value), tuple(inner)
        if isinstance(value, DeferredRows):
            if value.may_join(self.layer, call.topology):
                call.before[name] = value.call
                return "before", name, tuple(value.call.whats.items())
            value = value.rows()
        if not isinstance(value, Tensor):
            return self._constant(call, name, value)
        self._check(value)
        own, topology = self.prefix + name, call.topology
        counts = (("dst", topology.num_dst), ("src", topology.num_src))
        edges = ("edge", topology.num_edges)
        for kind, count in ((edges, *counts) if of_edges else (*counts, edges)) if value.dim() else ():
            if value.shape[0] == count:
                call.rows[kind][own] = value
                return "rows", kind, own
        call.shared[own] = value
        return "shared", own

    def _constant(self, call: Call, name: str, value: object) -> What:
        if type(value) in (int, float):  # guards watch it, and make an input of it where it changes from call to call
            call.numbers[self.prefix + name] = cast("float", value)
            return "shared", self.prefix + name
        if type(value) not in _PLAIN:
            raise CaptureError(f"{name!r} is a {type(value).__name__}")
        return "constant", type(value), value

    def _check(self, value: Tensor) -> None:
        if not is_plain_tensor(value) or value.layout != torch.strided:
            raise CaptureError(f"a tensor is a {type(value).__name__}, {value.layout}")
        if value.device != self.edge_index.device:
            raise CaptureError("tensors lie on several devices")
