"""Model watch: whether what a model's code reads beside its parameters and buffers is as it was.

Takes: a module. Gives: a ModelWatch. Made once per recording, and asked at every call.
Nothing runs: the code that forward may run is found by the names that code speaks, function by function, for to watch a
recording itself takes several times as long as the recording. What code writes itself is left out, and so are modes.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from vgraph.capture.guards.code_watch import Reading, is_users, is_watched
from vgraph.capture.guards.code_writes import quoted_names, written_names
from vgraph.capture.guards.compile_guards import Check, StandIns, make_check
from vgraph.capture.guards.walk import Walker
from vgraph.capture.guards.walk_objects import visit_class
from vgraph.capture.guards.watchable import is_library, is_watched_class
from vgraph.capture.guards.watched import Numbers, Step, Walk, item

_GROUPS = tuple(map(item, ("_parameters", "_buffers", "_modules")))
_MAKING = frozenset(  # which run while an object is made, copied or shown
    "__new__ __init__ __post_init__ __init_subclass__ __repr__ __getstate__ __setstate__ __deepcopy__".split()
)


class ModelWatch:
    """What a model's code reads beside parameters and buffers, as it was when this was made; holds no model.

    Plain tensors, and objects of which nobody can see whether they change, are watched for which object they are,
    tensors also for writes to them. Code that asks for attributes by names that it computes may read any attribute of
    the user's modules.
    """

    def __init__(self, model: nn.Module) -> None:
        self._walk = _walk(model)

    @cached_property
    def _checks(self) -> tuple[Check, Check]:
        """Of what is found without the model (code, globals, classes), and of what lies in it."""
        return self._check_of(self._part(of_model=False)), self._check_of(self._part(of_model=True))

    def change(self, model: nn.Module | None) -> tuple[str, str]:
        """What of the model is otherwise now, and the line of the code that reads it; "": nothing.

        None: the model is gone, and what lay in it cannot change.
        """
        of_code, of_model = self._checks
        if of_code(()) is None or (model is not None and of_model((model,)) is None):
            return self._first_change(model)
        return "", ""

    def _first_change(self, model: nn.Module | None) -> tuple[str, str]:
        for is_in_model in (False, True) if model is not None else (False,):
            part = self._part(of_model=is_in_model)
            for check in part.checks:
                if self._is_otherwise(replace(part, checks=[check], numbers=self._numbers({})), model):
                    return self._told(*check)
            for path, number in part.numbers.values.items():
                if self._is_otherwise(replace(part, checks=[], numbers=self._numbers({path: number})), model):
                    return self._told(number[1], "same", number[0])
        return "something", ""

    def _is_otherwise(self, part: Walk, model: nn.Module | None) -> bool:
        return self._check_of(part)((model,)) is None

    @staticmethod
    def _check_of(part: Walk) -> Check:
        return make_check(part, (), set(), StandIns())

    def _part(self, *, of_model: bool) -> Walk:
        checks = [check for check in self._walk.checks if _asks_model(*check) == of_model]
        values = {p: n for p, n in self._walk.numbers.values.items() if _is_in_model(n[1]) == of_model}
        return Walk(checks=checks, numbers=self._numbers(values))

    def _numbers(self, values: dict[str, tuple[complex, Step]]) -> Numbers:
        return replace(self._walk.numbers, values=values)

    def _told(self, step: Step, kind: str, value: object) -> tuple[str, str]:
        found, line = _spoken(step, self._walk.numbers.constants), ""
        if kind == "lacks":
            found = f"{found}.{value}"
        while step.parent is not None and not line:
            step = step.parent
            line = "" if step.code is None else f"{step.code.co_filename}:{step.code.co_firstlineno}"
        return found, line


def _asks_model(step: Step, kind: str, value: object) -> bool:
    return _is_in_model(step) or (kind == "twin" and isinstance(value, Step) and _is_in_model(value))


def _is_in_model(step: Step) -> bool:
    while step.parent is not None:
        step = step.parent
    return step.text.startswith("r[")


def _spoken(step: Step, constants: list[object]) -> str:
    """How the user would name what stands there."""
    if step.parent is None:
        thing = constants[int(step.text[2:-1])] if step.text.startswith("k[") else None
        return getattr(thing, "__name__", "") or "model"
    before, (kind, key) = step.parent, step.slot or ("", "")
    if variable := _variable(step):
        return variable
    if kind == "item" and before.text == "{}.__globals__":
        return str(key)
    holder = _spoken(before, constants)
    if kind == "item" and before.text in ("{}.__dict__", *_GROUPS):
        return f"{holder}.{key}"
    is_within = step.text.startswith("{}.__") or step.text in (*_GROUPS, "{}._version")  # no name of the user's
    return holder if is_within else step.text.format(holder)


def _variable(step: Step) -> str:
    """The variable of an outer function that stands there; "": something else does."""
    function = None if step.parent is None else step.parent.parent
    if step.slot is None or step.slot[0] != "cell" or function is None or function.code is None:
        return ""
    return function.code.co_freevars[step.slot[1]]


# ---------------------------------------------------------------- the walk
def _walk(model: nn.Module) -> Walk:
    """Function by function, until the code that was met calls nothing new."""
    reading = Reading()
    for kind in {type(module): None for module in model.modules()}:
        forward = kind.forward
        if isinstance(forward, types.FunctionType) and is_watched(forward.__code__):
            reading.codes[forward.__code__] = forward.__globals__
    while True:
        walker = _ModelWalker(model, reading)
        walk = walker.walk_model()
        if not walker.met:
            return walk
        reading.codes |= walker.met


class _ModelWalker(Walker):
    """One walk, by the names that known code speaks; ``met``: more code that may run."""

    def __init__(self, model: nn.Module, reading: Reading) -> None:
        super().__init__(reading, lenient=True)
        self.model, self.met = model, dict[types.CodeType, dict[str, object]]()
        self.known = {id(tensor) for tensor in (*model.parameters(), *model.buffers(), *_computed(model))}
        self.everything, self.asks_by_name, self.tells_apart = False, True, False
        self.misses = any(self.words[code].handles for code in reading.codes if is_users(code))
        writing = (code for code in reading.codes if is_users(code) and code.co_name not in _MAKING)
        self.written = set[str]().union(*map(written_names, writing))
        self.names |= self._of_modules()
        self.seen[id(torch_module)] = (torch_module, self.anchor(torch_module))  # debuggers hook into all modules

    def _of_modules(self) -> set[str]:
        """Names of submodules; and quoted ones, or those of all attributes where the user's code computes names."""
        modules = list(self.model.modules())
        names = {name for module in modules for name, _ in module.named_children()}
        for quoted in map(quoted_names, filter(is_users, self.reading.codes)):
            if quoted is None:
                names.update(*(vars(module) for module in modules if not is_library(type(module))))
            else:
                names |= quoted
        return names

    def walk_model(self) -> Walk:
        """Classes come first: what they read is found without the model."""
        for module in self.model.modules():
            visit_class(self, type(module), 0)
        self.visit(self.model, Step(None, "r[0]"))
        return self.finish()

    # ------------------------------------------------------------ what is left out
    def speaks(self, name: str) -> bool:
        return name in self.names and name not in self.written and name != "training"

    def visit(self, value: object, step: Step, depth: int = 0, names: set[str] | None = None) -> None:
        if not self._is_written(step):
            super().visit(value, step, depth, names)

    def _is_written(self, step: Step) -> bool:
        kind, key = step.slot or ("", None)
        return _variable(step) in self.written or (kind == "item" and key in self.written)

    # ------------------------------------------------------------ what may run
    def may_call(self, owner: type, name: str) -> bool:
        if name.startswith("__") and name.endswith("__"):  # as operators, and other words of the language
            return not is_library(owner) and not (name in _MAKING and issubclass(owner, nn.Module))
        return self.speaks(name) and (is_watched_class(owner) or not is_library(owner))

    def _visit_plain_function(self, value: types.FunctionType, step: Step, depth: int) -> None:
        if value.__code__ not in self.reading.codes and is_watched(value.__code__):
            self.met[value.__code__] = value.__globals__
        super()._visit_plain_function(value, step, depth)

    # ------------------------------------------------------------ what is watched for which object it is
    def _visit_tensor(self, value: Tensor, step: Step, depth: int) -> None:
        if id(value) not in self.known:
            self.check(step, "itself", weakref.ref(value))
            if not value.is_inference():
                self.check(step.to("{}._version"), "same", value._version)

    def refuse(self, value: object, step: Step, reason: str) -> None:
        self.check(step, "itself", _reference(value))


def _computed(model: nn.Module) -> list[Tensor]:
    """What calls have left in attributes; and weights that hooks of torch's make of ``weight_orig``, ``weight_v``."""
    found: list[Tensor] = []
    for module in model.modules():
        made = {name.rpartition("_")[0] for name, _ in module.named_parameters(recurse=False)}
        attributes = vars(module).items()
        found += [t for n, t in attributes if isinstance(t, Tensor) and (n in made or t.grad_fn is not None)]
    return found


def _reference(value: object) -> Callable[[], object]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
