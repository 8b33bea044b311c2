"""Walk of objects: instances, their classes, and torch's modules, as attribute look-up sees them.

Takes: a walk's state, objects. Gives: more checks in its Walk. Runs once per function.
What runs, or is read, is looked up at the class as Python does it: a method that is replaced anywhere, on the
instance, on the class or on a base, gives another answer there.
"""

from __future__ import annotations

import abc
import functools
import types
from typing import cast

from torch import nn
from torch.nn.modules import module as torch_module

from vgraph.capture.guards.hooks import FORWARD_HOOKS
from vgraph.capture.guards.walk_state import WalkState
from vgraph.capture.guards.watchable import hides_nothing, is_library, is_of, is_open, is_watched_class
from vgraph.capture.guards.watched import Made, Step, item

_INTERNALS = frozenset(nn.Module().__dict__)
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_HOOKS = (*FORWARD_HOOKS, *_BACKWARD_HOOKS)
_GROUPS = ("_parameters", "_buffers", "_modules")
_GLOBAL_HOOKS = tuple(f"_global{hooks}" for hooks in (*_HOOKS, "_forward_hooks_always_called"))
_OF_EVERY_LAYER = ("__call__", "_call_impl", "__getattr__")
_ITERATES = frozenset({"children", "modules", "parameters", "named_children", "named_modules", "named_parameters"})
_KNOWN = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)


# ---------------------------------------------------------------- instances
def visit_instance(walker: WalkState, value: object, step: Step, depth: int) -> None:
    """An object by its attributes, slots and class; no object of a library's that keeps more than these."""
    kind: type = type(value)
    if not hides_nothing(kind) or (is_library(kind) and not is_open(kind) and not is_watched_class(kind)):
        walker.refuse(value, step, f"it reads a {kind.__name__}, whose changes cannot be watched")
        return
    if isinstance(kind.__getattribute__, types.FunctionType):
        walker.refuse(value, step, f"it reads a {kind.__name__}, which answers for its attributes itself")
        return
    walker.check(step, "type", kind)
    visit_class(walker, kind, depth)
    inside = getattr(value, "__dict__", None)
    if inside is not None:
        table = step.to("{}.__dict__")
        asks_itself = not is_library(kind) and hasattr(kind, "__getattr__")  # for what is not there
        walker.visit_attributes(inside, table, depth, whole=any(map(is_open, kind.__mro__)), misses=asks_itself)
        _check_shadows(walker, kind, inside, table)
    for owner in kind.__mro__:
        for name, found in owner.__dict__.items():
            if is_of(found, types.MemberDescriptorType) and walker.speaks(name) and not is_library(owner):
                if hasattr(value, name):
                    walker.visit(getattr(value, name), step.to(f"{{}}.{name}"), depth + 1)
                else:
                    walker.check(step, "no attribute", name)


def _check_shadows(walker: WalkState, kind: type, inside: dict[str, object], table: Step) -> None:
    """What is read from the class must not be hidden later by an attribute of the instance."""
    for name in walker.classes.get(kind, ()):
        if name not in inside:
            walker.check(table, "lacks", name)


# ---------------------------------------------------------------- classes
def visit_class(walker: WalkState, kind: type, depth: int) -> None:
    """Methods that ran and plain attributes that the code speaks, as a look-up at the class finds them."""
    if kind in walker.classes or (is_library(kind) and not is_watched_class(kind)):
        return
    walker.classes[kind] = []
    walker.check_names(kind, walker.anchor(kind))
    _check_bases(walker, kind)
    known: set[str] = set()
    for owner in kind.__mro__:
        if not is_library(owner) or is_watched_class(owner):
            for name, found in owner.__dict__.items():
                seen_by = owner if name in known else kind  # by super() alone, where a class before has it
                _visit_class_attribute(walker, (kind, owner, seen_by), name, found, depth)
            known |= owner.__dict__.keys()
    if issubclass(kind, nn.Module):
        for name in _OF_EVERY_LAYER:
            walker.check(walker.anchor(kind).to(f"{{}}.{name}"), "is", getattr(kind, name))
    if not is_library(type(kind)):
        visit_class(walker, type(kind), depth)


def _check_bases(walker: WalkState, kind: type) -> None:
    if is_library(kind):
        return
    walker.check(walker.anchor(kind).to("{}.__mro__"), "is", kind.__mro__)
    for owner in kind.__mro__:
        if not is_library(owner):
            _check_names(walker, owner)
    if isinstance(kind, abc.ABCMeta) and walker.walk.numbers.asks_types:
        walker.check(walker.anchor(abc.get_cache_token).to("{}()"), "same", abc.get_cache_token())


def _check_names(walker: WalkState, owner: type) -> None:
    """What a class has is not to be more, or less, as far as code may look for it there."""
    table = walker.anchor(owner).to("{}.__dict__")
    if walker.asks_by_name and not walker.everything:
        walker.check(table, "without", frozenset(walker.names - owner.__dict__.keys()))
    else:
        getattr(owner, "__annotations__", None)  # which the first to ask for it makes appear
        walker.check(table, "items", tuple(owner.__dict__))


def _visit_class_attribute(
    walker: WalkState, kinds: tuple[type, type, type], name: str, found: object, depth: int
) -> None:
    kind, owner, seen_by = kinds
    here = walker.anchor(seen_by).to(f"{{}}.{name}")
    functions = _functions_of(found, here)
    if functions:
        if any(walker.ran(function) for function, _ in functions) or walker.may_call(owner, name):
            if not is_of(found, (staticmethod, classmethod)):
                walker.check(here, "is", found)
            for function, step in functions:
                walker.visit(function, step, depth + 1)
            _note_read(walker, kind, name, found)
    elif walker.speaks(name) and not is_of(found, _KNOWN) and name not in _INTERNALS:
        # the first answers as its own code says, the second a class without any makes for itself
        if hasattr(type(found), "__get__") or name == "__annotations__":
            here = walker.anchor(owner).to("{}.__dict__").to(item(name))
        walker.visit(found, here, depth + 1)
        _note_read(walker, kind, name, found)


def _functions_of(found: object, here: Step) -> list[tuple[object, Step]]:
    """The functions that run where an attribute of a class is read or called, and the way to each."""
    if is_of(found, types.FunctionType):
        return [(found, here)]
    if is_of(found, (staticmethod, classmethod)) and is_of(found.__func__, types.FunctionType):
        return [(found.__func__, here if is_of(found, staticmethod) else here.to("{}.__func__"))]
    if is_of(found, functools.cached_property):
        return [(found.func, here.to("{}.func"))]
    if is_of(found, property):
        parts = ((part, getattr(found, part)) for part in ("fget", "fset", "fdel"))
        return [(f, here.to(f"{{}}.{part}")) for part, f in parts if isinstance(f, types.FunctionType)]
    return []


def _note_read(walker: WalkState, kind: type, name: str, found: object) -> None:
    """An attribute that one of the instance would hide; special methods are looked up at the class alone."""
    is_special = name.startswith("__") and name.endswith("__")
    if not is_special and not (hasattr(type(found), "__set__") or is_of(found, property)):
        walker.classes[kind].append(name)


# ---------------------------------------------------------------- torch's modules
def visit_layer(walker: WalkState, module: nn.Module, step: Step, depth: int) -> None:
    """A module by its hooks, parameters, buffers, children and attributes."""
    kind: type = type(module)
    if not hides_nothing(kind) or (is_library(kind) and not is_watched_class(kind)):
        walker.refuse(module, step, f"it reads a {kind.__name__}, whose changes cannot be watched")
        return
    walker.check(step, "type", kind)
    table, inside, of_library = step.to("{}.__dict__"), module.__dict__, is_library(kind)
    _visit_hooks(walker, inside, table, depth)
    if walker.speaks("training"):
        walker.check(table.to("{}['training']"), "same", module.training)
    visit_class(walker, kind, depth)
    whole = of_library or not _ITERATES.isdisjoint(walker.names)
    empty = (name for name in (*_HOOKS, *(_GROUPS if whole else ())) if not inside[name])
    walker.check(table, "empty items", tuple(empty))
    for group in _GROUPS:
        _visit_group(walker, inside[group], table.to(item(group)), depth, whole=whole)
    asks_itself = kind.__getattr__ is not nn.Module.__getattr__
    made = walker.made
    if of_library:  # such as weights that ``weight_norm`` makes at every call
        walker.made = Made()
    walker.visit_attributes(inside, table, depth, skip=_INTERNALS, misses=asks_itself)
    walker.made = made
    if of_library and not walker.asks_by_name:
        walker.check(table, "len", len(inside))
        walker.check(table, "lacks", "forward") if "forward" not in inside else None
    else:
        _check_shadows(walker, kind, inside, table)


def _visit_group(walker: WalkState, group: dict[str, object], step: Step, depth: int, *, whole: bool) -> None:
    """Parameters, buffers or children: all of them, in a layer of torch's, or those whose names are spoken."""
    if whole and group:
        walker.check(step, "len", len(group))
    elif walker.everything:
        walker.check(step, "items", tuple(group))
    elif walker.misses:
        walker.check(step, "without", frozenset(walker.own - group.keys()))
    for name, thing in group.items():
        if whole or walker.speaks(name):
            walker.visit(thing, step.to(item(name), ("item", name)), depth + 1)


def _visit_hooks(walker: WalkState, inside: dict[str, object], table: Step, depth: int) -> None:
    for hooks in FORWARD_HOOKS:
        if inside[hooks]:
            walker.visit(inside[hooks], table.to(item(hooks)), depth + 1)
    for hooks in _BACKWARD_HOOKS if walker.lenient else ():  # which may be why a function was refused
        walker.check(table.to(item(hooks)), "items", tuple(cast("dict[int, object]", inside[hooks])))
    if id(torch_module) not in walker.seen:  # hooks of all modules
        walker.seen[id(torch_module)] = (torch_module, table)
        step = walker.anchor(vars(torch_module))
        for name in _GLOBAL_HOOKS:
            if vars(torch_module)[name]:
                walker.visit(vars(torch_module)[name], step.to(item(name)), depth + 1)
        walker.check(step, "empty items", tuple(name for name in _GLOBAL_HOOKS if not vars(torch_module)[name]))
