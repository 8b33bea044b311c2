"""States: shape and dtype of what vertices hand to their parents, found by evaluating without children.

Takes: a vertex function and a call's features. Gives: a StateSpec a state. Runs once per function.
"""

from __future__ import annotations

import dis
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product

import torch
from torch import nn

from vgraph.api.vertex.vertex import StateSpec, VertexBody
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.code_watch import unwatched
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.tracer import Record, Ref, Tracer
from vgraph.capture.rows.row_writing import LostFractionsError
from vgraph.capture.session import Session, Spec, Specs
from vgraph.errors import DTypeError, FeatureError, FunctionError, VGraphError
from vgraph.ir.program import map_leaves
from vgraph.ir.space import OF_LEAVES, Space
from vgraph.user_line import is_user_file

logger = logging.getLogger("vgraph")

Shapes = Mapping[str, tuple[int, ...]]
States = Mapping[str, StateSpec]

_MATRICES: tuple[tuple[int, ...], ...] = ((1, 1), (1, 1, 1))
_MOST_SHAPES, _MOST_ATTEMPTS, _MOST_ROUNDS = 10, 96, 4
_OTHER_FLOATS = (torch.float64, torch.bfloat16, torch.float16)  # of a tensor that no parameter is, say
_OTHER_KINDS = tuple(StateSpec(shape, dtype) for dtype in (torch.int64, torch.bool) for shape in ((), (1,)))
_ANY = 7  # a width that no function has on purpose
_TAKEN = "nothing tells the shape of the state %r of %s: it is one number a vertex; to change that, states={%r: width}"
_GIVE = 'super().__init__(states={"h": width})'
_MOST_ALIKE = 40  # refusals in the same words: no shape of a state is their cause


@dataclass(frozen=True)
class _Beginning:
    """What states are before the first evaluation.

    One column of ``dtype`` each, but for those that ``shapes`` or ``kinds`` tell.
    """

    dtype: torch.dtype
    shapes: Shapes = field(default_factory=dict[str, tuple[int, ...]])
    kinds: States = field(default_factory=dict[str, StateSpec])

    def of(self, name: str) -> StateSpec:
        return self.kinds.get(name) or StateSpec(self.shapes.get(name, (1,)), self.dtype)


class _Unknown(dict[str, StateSpec]):
    """States before the first evaluation: every name that is asked for is there, those given are also listed."""

    def __init__(self, given: Shapes, beginning: _Beginning) -> None:
        super().__init__({name: replace(beginning.of(name), row_shape=shape) for name, shape in given.items()})
        self.beginning = beginning
        self.read: dict[str, None] = {}

    def get(self, key: str, default: object = None) -> StateSpec:
        self.read[key] = None
        return super().get(key) or self.beginning.of(key)


@dataclass(eq=False)
class _Search:
    """One search for the states of a function."""

    module: nn.Module
    body_of: Callable[[States], VertexBody]
    specs: Specs
    spaces: tuple[Space, ...]
    given: Shapes
    device: torch.device | None
    read: dict[str, None] = field(default_factory=dict[str, None])  # names of states, in order
    progress: int = 0  # how many ops the last evaluation came to
    inputs: dict[str, Spec] = field(default_factory=dict[str, Spec])
    done: list[object] = field(
        default_factory=list[object]
    )  # operators of the last evaluation, and their plain arguments
    met: dict[torch.dtype, None] = field(default_factory=dict[torch.dtype, None])  # of tensors from outside
    counted: bool = False  # rows were counted by ``len``

    @property
    def asked(self) -> list[str]:
        """States of unknown shape that are read, in order."""
        return [name for name in self.read if name not in self.given]

    def attempt(self, beginning: _Beginning) -> States | None:
        """The states that an evaluation from this beginning agrees with; None if none."""
        unknown = _Unknown(self.given, beginning)
        try:
            states = self._found(unknown, widens=True)
        finally:
            self.read |= unknown.read
        for _ in range(_MOST_ROUNDS):
            if states is None:
                break
            found = self._found(states, widens=False)
            if found == states:
                is_right = self.run(states, widens=False, second=True) == states
                if is_right and self.counted:
                    self._check_counts(states)
                return states if is_right else None
            states = found
        return None

    def _found(self, states: States, *, widens: bool) -> States | None:
        """What an evaluation scatters; None where a state's rows have met a dim of features that has one entry."""
        found = self.run(states, widens=widens)
        counts = set(self._sizes(second=False).values())
        is_wide = any(not counts.isdisjoint(spec.row_shape) for spec in found.values())
        return found if not is_wide or self.run(states, widens=widens, second=True) == found else None

    def float_features(self) -> list[torch.dtype]:
        """The dtypes of features that were read, but those of whole numbers."""
        return list(dict.fromkeys(s.dtype for s in self.inputs.values() if has_fractions(s.dtype)))

    def _agrees(self, states: States) -> bool:
        """Whether an evaluation with these states gives them again."""
        try:
            return self.run(states, widens=False) == states and self.run(states, widens=False, second=True) == states
        except (RuntimeError, ValueError, IndexError, VGraphError, CaptureError):
            return False

    def as_features(self, found: States) -> States:
        """Of states that nothing but themselves gives a dtype: with that of the features, if these have one."""
        dtypes = self.float_features()
        if len(dtypes) != 1:
            return found
        other = {
            n: replace(spec, dtype=dtypes[0]) if spec.dtype.is_floating_point else spec for n, spec in found.items()
        }
        return other if other != found and self._agrees(other) else found

    def settled(self, found: States) -> States:
        """The states; the log names those that would be as well of any other shape."""
        open_ones = [name for name in self.asked if name in found and found[name].row_shape == (1,)]
        for name in open_ones:
            if self._agrees({**found, name: replace(found[name], row_shape=(_ANY,))}):
                with unwatched():  # whoever listens is no part of the function
                    logger.info(_TAKEN, name, type(self.module).__name__, name)
        return found

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
        session.guesses_whole = isinstance(states, _Unknown) and not states.beginning.dtype.is_floating_point
        session.per_vertex = True
        recording = tracer.recording
        try:
            with tracer:
                body.run(session)
        finally:
            read = (n for n in recording.inputs if not n.startswith(("$", "child:")))
            self.inputs.update((name, self.specs(name)) for name in read)
            self.met |= {t.dtype: None for t, _ in recording.lifted if t.dim() and has_fractions(t.dtype)}
            self.progress = len(recording.records)
            self.done = [leaf for record in recording.records for leaf in _plain_leaves(record)]
            self.counted |= session.counted
            session.forget()
        self._check_given(body.seen)
        return body.seen

    def _check_given(self, seen: States) -> None:
        for name, row_shape in self.given.items():
            if name in seen and seen[name].row_shape != row_shape:
                raise FunctionError(
                    f"the state {name!r} is given as {row_shape}, but scattered as {seen[name].row_shape}",
                    cure="give the shape that it has, or scatter the shape that was given",
                )


@dataclass(eq=False)
class _Refusals:
    """What was refused under some shapes of states; other errors that came up, and how far they came."""

    found: dict[str, tuple[VGraphError, int]] = field(default_factory=dict[str, tuple[VGraphError, int]])
    count: int = 0
    num_other: int = 0
    beyond: int = -1

    def add(self, error: VGraphError, progress: int) -> None:
        self.count += 1
        known = self.found.get(str(error))
        self.found[str(error)] = (error, max(progress, known[1] if known else 0))

    def are_alike(self, most: int) -> bool:
        """Whether all say the same: then no shape is their cause."""
        return self.count >= most and len(self.found) == 1 and not self.num_other

    def throw(self) -> None:
        """Raises the one that came furthest, if it came as far as anything."""
        error, progress = max(self.found.values(), key=lambda pair: pair[1], default=(None, -1))
        if error is None or progress < self.beyond:
            return
        if len(self.found) == 1 and not self.num_other:
            raise error
        cure = f"{error.cure}; if it is meant so, a state's width was guessed: {_GIVE}"
        raise type(error)(error.fact, cure=cure, line=error.line) from error


def _plain_leaves(record: Record) -> Iterator[object]:
    yield record.target
    leaves: list[object] = []
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
    own = [p.dtype for p in module.parameters() if has_fractions(p.dtype)]
    default = own[0] if own else torch.get_default_dtype()
    dtypes = [default, *(dtype for dtype in own if dtype.is_complex)] if own else [torch.int64, default]
    search = _Search(module, body_of, specs, spaces, given, device)
    first: Exception | None = None
    refusals = _Refusals()
    for beginning in _beginnings(search, list(dict.fromkeys(dtypes))):
        try:
            found = search.attempt(beginning)
        except LostFractionsError:
            continue
        except (FunctionError, FeatureError) as error:  # perhaps of a shape that was guessed
            refusals.add(error, search.progress)
            if not search.asked or refusals.are_alike(_MOST_ALIKE):
                raise
        except (VGraphError, CaptureError):
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            first = first or error
            refusals.num_other, refusals.beyond = refusals.num_other + 1, max(refusals.beyond, search.progress)
            if _is_raised_by_user(error) or not search.read:
                break
        else:
            if found is not None:
                return search.settled(found if own else search.as_features(found))
    refusals.throw()
    if first is not None:
        better = _explained(search, first, own)
        raise better from (first if better is not first else first.__cause__)
    raise ask_for_states(module, "their shapes depend on those of the children", "")


def has_fractions(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype are real or complex, and no whole ones."""
    return dtype.is_floating_point or dtype.is_complex


def _beginnings(search: _Search, dtypes: list[torch.dtype]) -> Iterator[_Beginning]:
    """Every state one column wide, then other shapes for the states that were read; last, other kinds of numbers."""
    yield from map(_Beginning, dtypes)
    if len(dtypes) > 1:  # no parameter tells: features may, or other tensors
        dtypes = [*dtypes, *(dtype for dtype in (*search.float_features(), *search.met) if dtype not in dtypes)]
        yield from map(_Beginning, dict.fromkeys([*dtypes[2:], *_OTHER_FLOATS]))
    yield from _of_shapes(search, dtypes, {})
    yield from _of_kinds(search, dtypes)


def _of_shapes(search: _Search, dtypes: list[torch.dtype], kinds: States) -> Iterator[_Beginning]:
    for shapes in _choices(search, kinds) if search.asked else ():
        for dtype in dtypes:
            yield _Beginning(dtype, shapes, kinds)


def _of_kinds(search: _Search, dtypes: list[torch.dtype]) -> Iterator[_Beginning]:
    """Whole numbers, such as ids, and truth values, for each state with which an evaluation comes further then."""
    yield _Beginning(dtypes[0])
    furthest, kinds, tried = search.progress, dict[str, StateSpec](), set[str]()
    while name := next((name for name in search.read if name not in tried), ""):
        tried.add(name)
        for kind in _OTHER_KINDS:
            yield _Beginning(dtypes[0], kinds={**kinds, name: kind})
            if search.progress > furthest:
                furthest, kinds = search.progress, {**kinds, name: kind}
                yield from _of_shapes(search, dtypes, kinds)


def _choices(search: _Search, kinds: States) -> Iterator[Shapes]:
    """First one shape for all states, then of each those with which an evaluation comes furthest, in all combinations.

    An evaluation that comes further may ask for more states. ``kinds``: states of known kinds, which are left out.
    """
    shapes = likely_shapes(search.module, [spec.row_shape for spec in search.inputs.values()])
    yield from (dict.fromkeys(search.asked, shape) for shape in shapes)
    kept: dict[str, list[tuple[int, ...]]] = {}
    while len(kept) < len(open_ones := [name for name in search.asked if name not in kinds]):
        for name in open_ones:
            reached: dict[tuple[int, ...], int] = {}
            for shape in ((1,), *shapes):
                yield {**{other: found[0] for other, found in kept.items()}, name: shape}
                reached[shape] = search.progress
            kept[name] = [shape for shape, far in reached.items() if far == max(reached.values())]
    combined = product(*kept.values())
    yield from (dict(zip(kept, chosen, strict=True)) for chosen in islice(combined, _MOST_ATTEMPTS))


def likely_shapes(module: nn.Module, features: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Shapes that a state may well have: those of features, and widths of parameters, of all heads together.

    One entry in every dim of a feature comes first, since it grows to what it meets.
    """
    features = list(features)
    ones = [(1,) * len(shape) for shape in features if len(shape) > 1]
    widths = [(size,) for p in module.parameters() for size in reversed(p.shape)]
    sides = [(size,) for shape in features if len(shape) > 1 for size in reversed(shape)]  # a matrix times the state
    heads = [(p.shape[0] * size,) for p in module.parameters() if p.dim() == 3 for size in reversed(p.shape[1:])]
    sizes = dict.fromkeys(shape[0] for shape in (*features, *widths) if len(shape) == 1)
    rest = [(wide - narrow,) for wide in sizes for narrow in sizes if wide > narrow]  # what is joined with others
    found = list(dict.fromkeys([(), *ones, *features, *heads, *widths, *sides]))
    more = dict.fromkeys([*_MATRICES, *((size, size) for size in sizes), *rest])
    return [*found[:_MOST_SHAPES], *(shape for shape in islice(more, _MOST_SHAPES) if shape not in found)]


def _is_raised_by_user(error: BaseException) -> bool:
    """Whether the user's own ``raise`` threw it, rather than a call of torch."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code.co_code
    is_raise = code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return is_raise and is_user_file(trace.tb_frame.f_code.co_filename, layers=True)


def _explained(search: _Search, error: Exception, own: list[torch.dtype]) -> Exception:
    """The error that tells the user most."""
    if _is_raised_by_user(error):
        return error
    line = _line_of(error)
    text = str(error)
    if "dtype" in text or "scalar type" in text:
        for name, dtype in ((name, spec.dtype) for name, spec in search.inputs.items()):
            if own and dtype not in own and (dtype.is_floating_point or _is_named(dtype, text)):
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


def _is_named(dtype: torch.dtype, text: str) -> bool:
    """Whether torch says that it was given this dtype; ids and masks are right to have another than parameters."""
    word = torch.empty(0, dtype=dtype).type().removeprefix("torch.").removesuffix("Tensor")
    given = max(text.rpartition(" got")[2], text.rpartition(" found")[2], key=lambda rest: -len(rest))
    return word.lower() in given.lower()


def _line_of(error: BaseException) -> str:
    """The user's line in the traceback of an error."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if is_user_file(name, layers=True):
            line = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def ask_for_states(module: nn.Module, fact: str, line: str) -> FunctionError:
    """What to do where states cannot be inferred."""
    return FunctionError(
        f"the widths of the states of {type(module).__name__} cannot be inferred: {fact}",
        cure=f"give them: {_GIVE}",
        line=line,
    )
