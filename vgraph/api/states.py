"""States: shape and dtype of what vertices hand to their parents, found by evaluating without children.

Takes: a vertex function and a call's features. Gives: a StateSpec a state; tempo: once a function.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import torch
from torch import nn

from vgraph.api.derive import Session, Spec, Specs
from vgraph.api.sizes import sizes_for
from vgraph.api.tracer import CaptureError, Record, Ref, Tracer, is_user_file
from vgraph.api.vertex import StateSpec, VertexBody
from vgraph.errors import DTypeError, FunctionError, VGraphError
from vgraph.ir.program import OF_LEAVES, Space, map_leaves

Shapes = Mapping[str, tuple[int, ...]]
States = Mapping[str, StateSpec]

_MATRICES: tuple[tuple[int, ...], ...] = ((1, 1), (1, 1, 1))
_MOST_SHAPES, _MOST_ATTEMPTS, _MOST_ROUNDS = 10, 96, 4


class _Unknown(dict[str, StateSpec]):
    """States before the first evaluation: every name is there."""

    def __init__(self, given: States, shapes: Shapes, dtype: torch.dtype) -> None:
        super().__init__(given)
        self.shapes, self.dtype = shapes, dtype
        self.asked: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            return self[key]
        self.asked[key] = None
        return StateSpec(self.shapes.get(key, (1,)), self.dtype)


@dataclass(eq=False)
class _Search:
    """One search for the states of a function."""

    module: nn.Module
    body_of: Callable[[States], VertexBody]
    specs: Specs
    spaces: tuple[Space, ...]
    given: States
    device: torch.device | None
    asked: dict[str, None] = field(default_factory=dict[str, None])  # in order
    progress: int = 0  # how many ops the last evaluation came to
    inputs: dict[str, Spec] = field(default_factory=dict[str, Spec])
    done: list[Any] = field(default_factory=list[Any])  # operators of the last evaluation, and their plain arguments
    counted: bool = False  # rows were counted by ``len``

    def attempt(self, shapes: Shapes, dtype: torch.dtype) -> States | None:
        """The states that an evaluation from this beginning agrees with; None if none."""
        unknown = _Unknown(self.given, shapes, dtype)
        try:
            states = self.run(unknown, widens=True)
        finally:
            self.asked |= unknown.asked
        for _ in range(_MOST_ROUNDS):
            found = self.run(states, widens=False)
            if found == states:
                is_right = self.run(states, widens=False, second=True) == states
                if is_right and self.counted:
                    self._check_counts(states)
                return states if is_right else None
            states = found
        return None

    def _check_counts(self, states: States) -> None:
        """A leaf alone goes the way that many vertices go, though the function counted its children by ``len``."""
        done, sizes = self.done, self._sizes(second=True)
        small = {space: {"vertex": 1, "source": 1, "edge": 0}.get(space.kind, n) for space, n in sizes.items()}
        try:
            self.run(states, widens=False, sizes=small)
        except (RuntimeError, ValueError, IndexError) as error:
            raise CaptureError("what it does depends on a number of rows or slots", _line_of(error)) from None
        counts, few = set(sizes.values()), set(small.values())
        alike = [one == two or (one in counts and two in few) for one, two in zip(done, self.done, strict=False)]
        if not all(alike) or len(done) != len(self.done):
            raise CaptureError("it branches on a number of rows or slots")

    def _sizes(self, *, second: bool = False) -> dict[Space, int]:
        return sizes_for(False, self.spaces, one_vertex_set=True)[second]

    def run(
        self, states: States, *, widens: bool, second: bool = False, sizes: Mapping[Space, int] | None = None
    ) -> States:
        """What an evaluation scatters, on one of the two numbers of rows that recordings have, or on others."""
        body = self.body_of(states)
        tracer = Tracer(sizes or self._sizes(second=second), self.device)
        session = Session(tracer, self.specs, mailbox=False)
        session.widens = widens
        session.per_vertex = True
        recording = tracer.recording
        try:
            with tracer:
                body.run(session)
        finally:
            read = (n for n in recording.inputs if not n.startswith(("$", "child:")))
            self.inputs.update((name, self.specs(name)) for name in read)
            self.progress = len(recording.records)
            self.done = [leaf for record in recording.records for leaf in _plain_leaves(record)]
            self.counted |= session.counted
            tracer.forget()
        self._check_given(body.seen)
        return body.seen

    def _check_given(self, seen: States) -> None:
        for name, spec in self.given.items():
            if name in seen and seen[name].row_shape != spec.row_shape:
                raise FunctionError(
                    f"the state {name!r} is given as {spec.row_shape}, but scattered as {seen[name].row_shape}",
                    cure="give the shape that it has, or scatter the shape that was given",
                )


def _plain_leaves(record: Record) -> Iterator[Any]:
    yield record.target
    leaves: list[Any] = []
    map_leaves((record.args, tuple(record.kwargs.values())), leaves.append)
    yield from (leaf for leaf in leaves if not isinstance(leaf, (Ref, torch.Tensor)))


def infer_states(
    module: nn.Module,
    body_of: Callable[[States], VertexBody],
    specs: Specs,
    spaces: tuple[Space, ...],
    given: Shapes,
    device: torch.device | None = None,
) -> States:
    """States as an evaluation scatters them when children are absent; checked by further ones.

    Raises:
        FunctionError: they cannot be inferred.
        DTypeError: a feature's dtype does not fit the parameters.
    """
    own = [p.dtype for p in module.parameters() if p.is_floating_point()]
    default = own[0] if own else torch.get_default_dtype()
    specified = {name: StateSpec(shape, default) for name, shape in given.items()}
    search = _Search(module, body_of, specs, spaces, specified, device)
    first: Exception | None = None
    for shapes, dtype in _beginnings(search, [default] if own else [torch.int64, default]):
        try:
            found = search.attempt(shapes, dtype)
        except (VGraphError, CaptureError):
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            first = first or error
            if _is_raised_by_user(error) or not search.asked:
                break
        else:
            if found is not None:
                return found
    if first is not None:
        better = _explained(search, first, own)
        raise better from (first if better is not first else first.__cause__)
    raise ask_for_states(module, "their shapes depend on those of the children", "")


def _beginnings(search: _Search, dtypes: list[torch.dtype]) -> Iterator[tuple[Shapes, torch.dtype]]:
    """Every state one column wide, then other shapes for the states that were read."""
    for dtype in dtypes:
        yield {}, dtype
    for shapes in _choices(search, dtypes):
        for dtype in dtypes:
            yield shapes, dtype


def _choices(search: _Search, dtypes: list[torch.dtype]) -> Iterator[Shapes]:
    """First one shape for all states, then of each those with which an evaluation comes furthest, in all combinations.

    An evaluation that comes further may ask for more states.
    """
    shapes = likely_shapes(search.module, [spec.row_shape for spec in search.inputs.values()])
    yield from (dict.fromkeys(search.asked, shape) for shape in shapes)
    kept: dict[str, list[tuple[int, ...]]] = {}
    while len(kept) < len(search.asked):
        for name in tuple(search.asked):
            reached: dict[tuple[int, ...], int] = {}
            for shape in ((1,), *shapes):
                yield {**{other: found[0] for other, found in kept.items()}, name: shape}
                reached[shape] = search.progress
            kept[name] = [shape for shape, far in reached.items() if far == max(reached.values())]
    combined = product(*kept.values())
    yield from (dict(zip(kept, chosen, strict=True)) for chosen in islice(combined, _MOST_ATTEMPTS))


def likely_shapes(module: nn.Module, features: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Shapes that a state may well have: those of features, and widths of parameters, of all heads together."""
    widths = [(size,) for p in module.parameters() for size in reversed(p.shape)]
    heads = [(p.shape[0] * size,) for p in module.parameters() if p.dim() == 3 for size in reversed(p.shape[1:])]
    found = list(dict.fromkeys([(), *features, *heads, *widths]))
    return [*found[:_MOST_SHAPES], *_MATRICES]


def _is_raised_by_user(error: BaseException) -> bool:
    """Whether the user's own ``raise`` threw it, rather than a call of torch."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code.co_code
    is_raise = code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return is_raise and is_user_file(trace.tb_frame.f_code.co_filename)


def _explained(search: _Search, error: Exception, own: list[torch.dtype]) -> Exception:
    """The error that tells the user most."""
    if _is_raised_by_user(error):
        return error
    line = _line_of(error)
    text = str(error)
    if "dtype" in text or "scalar type" in text:
        for name, dtype in ((name, spec.dtype) for name, spec in search.inputs.items()):
            if own and dtype not in own:
                kind, _, short = name.removesuffix(OF_LEAVES).partition(":")
                kind = "vertex" if kind == "subset" else kind
                convert = f", or convert the module with .to({dtype})" if dtype.is_floating_point else ""
                return DTypeError(
                    f"the {kind} feature {short!r} is {dtype}, the parameters are {own[0]}",
                    cure=f"pass {short}.to({own[0]}){convert}",
                    line=line,
                )
    if not search.asked:
        return error
    return ask_for_states(search.module, f"evaluating it without children fails: {text}", line)


def _line_of(error: BaseException) -> str:
    """The user's line in the traceback of an error."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if is_user_file(name):
            line = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def ask_for_states(module: nn.Module, fact: str, line: str) -> FunctionError:
    """What to do where states cannot be inferred."""
    return FunctionError(
        f"the widths of the states of {type(module).__name__} cannot be inferred: {fact}",
        cure='give them: super().__init__(states={"h": width})', line=line,
    )  # fmt: skip
