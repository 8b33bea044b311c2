"""Messages: what message and reduce functions see, and how they are recorded.

Takes: a session on examples, or real columns. Gives: dicts of tensors. Runs once per function.
Source: DGL section 3 (message, reduce and apply functions).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from vgraph.capture.body import Given
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.record.device_check import ElsewhereError
from vgraph.capture.rows.row_tensor import as_rows, num_rows, plain, row_shape
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.errors import DTypeError, FunctionError, NameLookupError
from vgraph.graphs.types import EdgeType
from vgraph.ir.moves import Gather
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.user_line import recorded_line

Names = Callable[[str], Sequence[str]]  # of the features of "src", "dst" or "edge"
Count = int | Callable[[], int]  # on examples a number of rows is made when it is asked for
EdgeEnds = tuple[Tensor, Tensor, Tensor]  # sources, destinations and edge ids
SET = "edges.data:"  # stands before the name of a feature that a function of edges sets itself


_running = threading.local()  # .etype: of the call that runs in this thread


def in_type(etype: EdgeType) -> None:
    """Says along which type of edges functions of this thread run from now on."""
    if not torch.compiler.is_dynamo_compiling():
        _running.etype = etype


def _type_now() -> EdgeType | None:
    """The type of edges that the call that makes a batch runs along; None: Dynamo traces it."""
    return None if torch.compiler.is_dynamo_compiling() else getattr(_running, "etype", None)


def _told(etype: EdgeType | None, count: Count) -> EdgeType:
    _refuse_examples(is_example=callable(count) or etype is None)
    assert etype is not None
    return etype


def _refuse_examples(*, is_example: bool) -> None:
    """CaptureError: examples stand for rows of any type."""
    if is_example:
        raise CaptureError("it asks for the type of its rows", recorded_line())


class Columns(MutableMapping[str, Tensor]):
    """Features by name, each made when it is first asked for; what is set is seen in this call alone."""

    def __init__(
        self,
        words: str,
        names: Callable[[], Sequence[str]],
        get: Callable[[str], Tensor],
        asked: Asked | None = None,
        kind: str = "",
    ) -> None:
        """``asked`` notes what of the features of this ``kind`` was not there, or listed."""
        self._words, self._names, self._get = words, names, get
        self._asked, self._kind = asked, kind
        self._grad = torch.is_grad_enabled()  # of the call, not of who asks first
        self._made: dict[str, Tensor] = {}
        self.written: dict[str, Tensor] = {}

    def __setitem__(self, name: object, rows: Tensor) -> None:
        if not isinstance(name, str):
            raise FunctionError(f"the feature {name!r} is set, which is no name", cure='set data["name"]')
        self.written[name] = self._made[name] = rows

    def __delitem__(self, name: str) -> None:
        fact = f"{name!r} is removed inside a function of rows"
        raise FunctionError(fact, cure="remove it from the graph, after the call")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._made:
            if name not in self._names():
                if self._asked is not None:
                    self._asked.absent.add(f"{self._kind}:{name}")
                raise NameLookupError(f"there is no {self._words} {name!r}", cure=self._instead())
            with torch.set_grad_enabled(self._grad):
                self._made[name] = self._get(name)
        return self._made[name]

    def _instead(self) -> str:
        there = sorted(self._names())
        return f"one of {there} is there" if there else f"set it first: there is no {self._words} at all"

    def _listed(self) -> Sequence[str]:
        names = self._names()
        if self._asked is not None:
            self._asked.listed[self._kind] = tuple(names)
        return names

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._listed(), *self.written)))

    def __len__(self) -> int:
        return len({*self._listed(), *self.written})


class EdgeBatch:
    """What a message function sees in ``Graph.update_all`` and its relatives: one row an edge.

    ``src``, ``dst`` and ``data`` map names to features of the sources, the destinations and the edges, (edges, ...)
    each. What is set in ``data`` where the function runs on all edges becomes a feature of the edges, as in DGL.

    Source: DGL 1.1, ``dgl.udf.EdgeBatch``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
        >>> g.apply_edges(lambda edges: {"sum": edges.src["h"] + edges.dst["h"]})
        >>> g.edata["sum"]
        tensor([6., 7.])
    """

    def __init__(self, src: Columns, dst: Columns, data: Columns, ids: Callable[[], EdgeEnds], count: Count) -> None:
        self.src, self.dst, self.data, self._ids, self._count = src, dst, data, ids, count
        self._etype = _type_now()  # now: the function may itself pass messages along other types

    @property
    def canonical_etype(self) -> EdgeType:
        """The type of the edges, three names; a function that asks for it runs on real rows alone."""
        return _told(self._etype, self._count)

    def batch_size(self) -> int:
        """The number of edges.

        Returns:
            A number from 0 up.
        """
        return _count_of(self._count)

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of the batch.

        Returns:
            Sources, destinations and edge ids, each (edges,).
        """
        return self._ids()


class NodeBatch:
    """What a reduce or apply function sees in ``Graph.update_all`` and its relatives: one row a node.

    ``data`` maps names to features of the nodes, (nodes, ...) each; ``mailbox`` maps the names of messages to tensors
    (nodes, in-edges, ...) in edge order, and is empty in an apply function.

    Source: DGL 1.1, ``dgl.udf.NodeBatch``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
        >>> g.update_all(fn.copy_u("h", "m"), lambda nodes: {"h": nodes.data["h"] + nodes.mailbox["m"].sum(1)})
        >>> g.ndata["h"]
        tensor([0., 0., 8.])
    """

    def __init__(
        self, data: Mapping[str, Tensor], mailbox: Mapping[str, Tensor], ids: Callable[[], Tensor], count: Count
    ) -> None:
        self.data, self.mailbox, self._ids, self._count = data, mailbox, ids, count
        self._etype = _type_now()

    @property
    def ntype(self) -> str:
        """The type of the nodes; a function that asks for it runs on real rows alone."""
        return _told(self._etype, self._count)[2]

    def batch_size(self) -> int:
        """The number of nodes.

        Returns:
            A number from 0 up.
        """
        return _count_of(self._count)

    def nodes(self) -> Tensor:
        """The nodes of the batch.

        Returns:
            Their ids, (nodes,).
        """
        return self._ids()


OfEdges = Callable[[EdgeBatch], dict[str, Tensor]]
OfNodes = Callable[[NodeBatch], dict[str, Tensor]]
Rows = TypeVar("Rows", EdgeBatch, NodeBatch)


def _count_of(count: Count) -> int:
    return count() if callable(count) else count


def checked(function: object, given: object, rows: int, what: str) -> dict[str, Tensor]:
    """The dict that a user's function returned, or an error that says what it returned instead."""
    name = getattr(function, "__name__", type(function).__name__)
    line = definition(function)
    if not isinstance(given, dict):
        raise FunctionError(
            f"the function {name} returned {type(given).__name__}, not a dict",
            cure='return {"name": tensor}',
            line=line,
        )
    for key, tensor in given.items():
        if not isinstance(key, str):
            fact = f"the function {name} returned {key!r}, which is no name"
            raise FunctionError(fact, cure='return {"name": tensor}', line=line)
        if not isinstance(tensor, Tensor) or tensor.dim() == 0 or num_rows(tensor) != rows:
            found = tuple(plain(tensor).shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise FunctionError(
                f"{key!r} from {name} is {found}, not a tensor of one row for each of {rows} {what}",
                cure=f"return one row for each of {what}.batch_size()",
                line=line,
            )
    return given


def definition(function: object) -> str:
    """``file:line`` where a function is defined, or nothing."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def check_callable(function: object) -> None:
    """FunctionError: what is given for a function is none."""
    if not callable(function):
        fact = f"a {type(function).__name__} is given where a function is asked for"
        raise FunctionError(fact, cure="give a function of a batch of rows, or one of vgraph.function")


def called(function: Callable[[Rows], object], rows: Rows) -> object:
    """What a user's function returns, which may itself pass messages along other types."""
    check_callable(function)
    etype = _type_now()
    try:
        return function(rows)
    finally:
        if etype is not None:
            in_type(etype)


def on_edges(function: OfEdges, edges: EdgeBatch, rows: int) -> dict[str, Tensor]:
    """What a function of edges returns, and what it sets in ``edges.data``, under names that begin with ``SET``."""
    given = checked(function, called(function, edges), rows, "edges")
    if not edges.data.written:
        return given
    return checked(function, {**{SET + name: own for name, own in edges.data.written.items()}, **given}, rows, "edges")


def without_set(given: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What was returned, and what was set."""
    written = {name.removeprefix(SET): rows for name, rows in given.items() if name.startswith(SET)}
    return {name: rows for name, rows in given.items() if not name.startswith(SET)} if written else given, written


class EdgeWritesError(CaptureError):
    """A message function sets features of edges: it runs on edges first, and what it sends is reduced then."""


class RaisedError(CaptureError):
    """A user's function failed on examples; run on real rows it says what is wrong, if it is."""

    is_kept = False  # perhaps a feature is missing that is there next time


class TorchRefusesError(RaisedError):
    """So it did by torch's word: what torch refuses of these shapes it refuses again."""

    is_kept = True


@contextmanager
def as_raised() -> Generator[None]:
    """What a user's function raises on examples, as a RaisedError."""
    try:
        yield
    except (CaptureError, ElsewhereError, DTypeError):
        raise
    except Exception as error:
        kind = TorchRefusesError if type(error) is RuntimeError else RaisedError
        raise kind(f"it raised {type(error).__name__}: {error}", recorded_line()) from error


class UpdateBody:
    """A message and a reduce function as derive.py runs them, and perhaps one of all nodes behind them.

    ``mailbox``: True where slots of any number stand for edges, a number where all have that degree.
    ``idtype``: of ids, as users know them.
    """

    per_vertex = False
    spaces: tuple[Space, ...] = ()

    def __init__(
        self,
        message: OfEdges,
        reduce: OfNodes,
        names: Names,
        mailbox: bool | int,
        apply: OfNodes | None = None,
        idtype: torch.dtype = torch.int64,
    ) -> None:
        self.name = getattr(message, "__name__", "message")
        self.message, self.reduce, self.names, self.mailbox = message, reduce, names, mailbox
        self.apply, self.idtype = apply, idtype
        self.output_names: tuple[str, ...] = ()

    def facts(self) -> tuple[str, ...]:
        return self.output_names

    def run(self, session: Session) -> Given:
        with as_raised():
            given = self.reduced(session)
            if self.apply is not None:
                given.update(self._applied(self.apply, session, given))
        self.output_names = tuple(given)
        return Given([plain(t) for t in given.values()], [], len(given))

    def _applied(self, apply: OfNodes, session: Session, fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rows = {name: as_rows(plain(tensor), VERTEX, session) for name, tensor in fresh.items()}
        size = session.sizes[VERTEX]
        columns = Columns(
            "feature",
            lambda: tuple({**dict.fromkeys(self.names("dst")), **rows}),
            lambda name: rows[name] if name in rows else session.input(f"dst:{name}"),
            session.asked,
            "dst",
        )
        nodes = NodeBatch(columns, {}, lambda: _ids(session, "$vertex_ids", VERTEX, self.idtype), _count(size, session))
        given = checked(apply, called(apply, nodes), size, "nodes")
        session.note_checked()
        return given

    def reduced(self, session: Session, at_source: Callable[[str], Tensor | None] | None = None) -> dict[str, Tensor]:
        """What the two functions give on examples; ``at_source``: features that sources do not have in rows."""
        sizes = session.sizes
        messages = run_message(self.message, session, self.names, self.idtype, at_source)
        if any(name.startswith(SET) for name in messages):
            raise EdgeWritesError("it sets features of edges, which stay")
        session.note_checked()
        mailbox = session.mailbox
        assert mailbox is not None

        def slots(name: str) -> Tensor:
            rows = plain(messages[name])
            return as_rows(rows.reshape(*mailbox, *row_shape(rows)), VERTEX, session)

        nodes = NodeBatch(
            Columns(
                "feature at the destination",
                lambda: self.names("dst"),
                lambda name: session.input(f"dst:{name}"),
                session.asked,
                "dst",
            ),
            Columns("message", lambda: tuple(messages), slots),
            lambda: _ids(session, "$vertex_ids", VERTEX, self.idtype),
            _count(sizes[VERTEX], session),
        )
        given = checked(self.reduce, called(self.reduce, nodes), sizes[VERTEX], "nodes")
        if self.mailbox is True:  # one degree at a time, DGL's batches are the same as ours
            session.note_checked()
        return given


def _ids(session: Session, name: str, space: Space, idtype: torch.dtype) -> Tensor:
    """The ids of rows, as users know them; kernels read them in 64 bits."""
    ids = session.ids(name, space)
    return ids if idtype == torch.int64 else ids.to(idtype)


def _count(size: int, session: Session) -> Callable[[], int]:
    """What ``batch_size`` gives on examples."""
    return lambda: session.row_count(size)


class EdgeBody:
    """A function of edges alone (``apply_edges``)."""

    mailbox: bool | int = False
    per_vertex = False
    spaces: tuple[Space, ...] = ()

    def __init__(self, function: OfEdges, names: Names, idtype: torch.dtype) -> None:
        self.name = getattr(function, "__name__", "function")
        self.function, self.names, self.idtype = function, names, idtype
        self.output_names: tuple[str, ...] = ()

    def facts(self) -> tuple[str, ...]:
        return self.output_names

    def run(self, session: Session) -> Given:
        with as_raised():
            given = run_message(self.function, session, self.names, self.idtype)
        session.note_checked()
        self.output_names = tuple(given)
        return Given([plain(t) for t in given.values()], [], len(given))


def run_message(
    function: OfEdges,
    session: Session,
    names: Names,
    idtype: torch.dtype,
    at_source: Callable[[str], Tensor | None] | None = None,
) -> dict[str, Tensor]:
    """A function of edges on the session's examples; ``at_source`` may know rows of edges for a name."""

    def end(kind: str) -> Callable[[str], Tensor]:
        def get(name: str) -> Tensor:
            known = at_source(name) if at_source is not None and kind == "src" else None
            if known is not None:
                return known
            rows = plain(session.input(f"{kind}:{name}"))
            return as_rows(move_rows(session, Gather(kind), rows), EDGE, session)

        return get

    def ids(name: str) -> Tensor:
        return _ids(session, name, EDGE, idtype)

    edges = EdgeBatch(
        Columns("feature at the source", lambda: names("src"), end("src"), session.asked, "src"),
        Columns("feature at the destination", lambda: names("dst"), end("dst"), session.asked, "dst"),
        Columns("edge feature", lambda: names("edge"), lambda n: session.input(f"edge:{n}"), session.asked, "edge"),
        lambda: (ids("$src_ids"), ids("$dst_ids"), ids("$edge_ids")),
        _count(session.sizes[EDGE], session),
    )
    return on_edges(function, edges, session.sizes[EDGE])
