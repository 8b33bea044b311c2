"""Every public docstring has its parts: a lint of what ``help`` shows.

Takes: what ``tests/public_names.py`` finds. Gives: one line for every part that is missing. Runs once.

What is asked of each:

- **A first line that stands alone**: a sentence with its full stop, and nothing but an empty line below it.
- ``Args:`` names the parameters of the signature, all of them and no others, each with its shape, its dtype or its
  meaning; that of a class names those of its constructor. A record (dataclass, NamedTuple) has ``Attributes:``, which
  names its fields. A property has none of the two, and a class that users do not make says who makes it.
- ``Returns:`` or ``Yields:``, unless the annotation says None; not for classes and properties, which say it in their
  first line.
- ``Raises:`` names every exception that a ``raise`` statement names in the function itself or in a function of vgraph
  that it calls by name (``f()``, ``module.f()``, ``self.f()``: the one that a method of Graph delegates to, and the
  checks), or a base class of it. What lies deeper may be named as well. Where the statement raises what another
  function made, some exception must be named. ``NEVER`` lists what cannot happen in that call, with the reason.
- ``Example:`` with a prompt (the doctests run it): of functions, of classes, of everything of ``Graph``; other
  classes' methods are shown in the example of their class.
- ``Source:`` for functions and classes: a paper, the function of DGL, PyTorch or PyG that is followed, or "none", with
  what it is instead. Methods have that of their class.

Errors are shown where they are raised: a first line is enough for them, but for what their constructors take. What
``vgraph.compat`` puts under the names of DGL's modules has DGL's manual.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.public_names import MADE_BY, Public, public_things
from vgraph import errors

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Source|Example):[ \n]?", re.MULTILINE)
ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): +(\S.*)?$", re.MULTILINE)
# (what, exception) -> why it cannot be raised there
NEVER: dict[tuple[str, str], str] = {
    ("vgraph.Graph.topology", "NameLookupError"): "no type is named",
    ("vgraph.to_bidirected", "FunctionError"): "the aggregator is the default",
    ("vgraph.partition.placement.profile.Profile.from_text", "ValueError"): "told as a DataError",
    ("vgraph.Graph.int", "DTypeError"): "the dtype is int32",
    ("vgraph.Graph.add_nodes", "DTypeError"): "the dtype is the graph's own",
    ("vgraph.to_homogeneous", "DTypeError"): "the dtype is the graph's own",
}


def sections_of(text: str) -> dict[str, str]:
    """A docstring by its sections; "" is what comes before them."""
    first, *rest = SECTION.split(text)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def entries_of(section: str) -> dict[str, str]:
    """Names, each with the beginning of what is said of it; one line may name several."""
    found: dict[str, str] = {}
    for names, said in ENTRY.findall(section):
        found.update(dict.fromkeys(names.replace("*", "").split(", "), said))
    return found


def faults_of(public: Public) -> Iterator[str]:
    """What is missing in a docstring, in words."""
    parts = sections_of(public.text)
    if not re.match(r"\S.*[.?!:](?:\n\n|\n?\Z)", parts[""]):
        yield "a first line that stands alone"
    is_error = public.is_class and issubclass(public.thing, BaseException)
    yield from _faults_of_names(public, parts, is_error=is_error)
    if not (public.is_class or public.is_property) and not ({"Returns", "Yields"} & parts.keys()) and _gives(public):
        yield "Returns"
    if not is_error:
        yield from _faults_of_raises(public, parts.get("Raises", ""))
    needs_example = public.owner is None or public.is_of_graph
    if needs_example and not is_error and ">>> " not in parts.get("Example", ""):
        yield "Example"
    if public.owner is None and not is_error and not parts.get("Source", "").strip():
        yield "Source"


def _faults_of_names(public: Public, parts: dict[str, str], *, is_error: bool) -> Iterator[str]:
    if (maker := MADE_BY.get(public.name)) is not None:
        if f"``{maker}``" not in parts[""]:
            yield f"who makes it: {maker}"
        return
    wanted, title = _parameters(public), "Args"
    if public.is_class and (fields := _fields(public.thing)):
        wanted, title = fields, "Attributes"
    elif is_error and "__init__" not in vars(public.thing):
        return
    named = entries_of(parts.get(title, ""))
    if list(named) != wanted:
        missing, strange = [n for n in wanted if n not in named], [n for n in named if n not in wanted]
        yield f"{title}: " + (f"missing {missing}" if missing else f"strange {strange}" if strange else "order")
    if any(not said for said in named.values()):
        yield f"{title}: an entry says nothing"


def _fields(thing: type) -> list[str]:
    if dataclasses.is_dataclass(thing):
        return [field.name for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    return list(getattr(thing, "_fields", ()))


def _parameters(public: Public) -> list[str]:
    is_own = getattr(public.function, "__module__", "").startswith("vgraph")
    if public.is_property or (public.is_class and not is_own):  # made as its base is
        return []
    given = list(inspect.signature(public.function).parameters)
    is_bound = public.is_class or public.owner is not None
    is_static = public.owner is not None and isinstance(_member(public), staticmethod)
    return given[1:] if is_bound and not is_static else given


def _member(public: Public) -> Any:
    return vars(public.owner)[public.name.rpartition(".")[2]]


def _gives(public: Public) -> bool:
    return str(inspect.signature(public.function).return_annotation) not in ("None", "NoReturn")


# ---------------------------------------------------------------- what is raised
def _faults_of_raises(public: Public, section: str) -> Iterator[str]:
    named = [_exception(name) for name in entries_of(section)]
    if None in named:
        yield "Raises: a name that is no exception"
    if len(named) < sum(len(names.split(", ")) for names, _ in ENTRY.findall(section)):
        yield "Raises: an exception twice"
    known = tuple(kind for kind in named if kind is not None)
    for name in sorted(raised_by(public)):
        kind = _exception(name)
        if (public.name, name) in NEVER:
            continue
        if not known or (kind is not None and not issubclass(kind, known)):
            yield f"Raises: {name}"


def _exception(name: str) -> type[BaseException] | None:
    found = getattr(errors, name, getattr(builtins, name, None))
    return found if inspect.isclass(found) and issubclass(found, BaseException) else None


def raised_by(public: Public) -> set[str]:
    """Names of exceptions in ``raise`` statements of a function and of those of vgraph that it calls by name."""
    function = inspect.unwrap(public.function)
    found = set(_raises_in(function))
    for called in _called(function, public.thing if public.is_class else public.owner):
        found |= _raises_in(called)
    return found


@cache
def _tree(function: Any) -> ast.AST | None:
    if not getattr(function, "__module__", "").startswith("vgraph") or not hasattr(function, "__code__"):
        return None
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, IndentationError, SyntaxError):  # a lambda, or what a dataclass wrote
        return None


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when the function is called: not what the functions within it do when they are."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _nodes(child)


@cache
def _raises_in(function: Any) -> frozenset[str]:
    tree = _tree(function)
    found: set[str] = set()
    for node in _nodes(tree) if tree is not None else ():
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            made = node.exc.func
            found.add(made.id if isinstance(made, ast.Name) else made.attr if isinstance(made, ast.Attribute) else "?")
    return frozenset(found)


def _called(function: Any, owner: type | None) -> Iterator[Any]:
    tree = _tree(function)
    for node in _nodes(tree) if tree is not None else ():
        if not isinstance(node, ast.Call):
            continue
        made, scope = node.func, function.__globals__
        if isinstance(made, ast.Name):
            yield inspect.unwrap(scope.get(made.id, len)) if inspect.isfunction(scope.get(made.id)) else None
        elif isinstance(made, ast.Attribute) and isinstance(made.value, ast.Name):
            place = owner if made.value.id == "self" else scope.get(made.value.id)
            found = getattr(place, made.attr, None) if place is not None else None
            yield found if inspect.isfunction(found) else None


# ---------------------------------------------------------------- tests
THINGS = public_things()


def test_every_public_docstring_has_its_parts() -> None:
    found = sorted(f"{public.name}: {fault}" for public in THINGS for fault in faults_of(public))
    assert not found, "missing in public docstrings:\n  " + "\n  ".join(found)


def test_nothing_is_excused_that_is_never_asked() -> None:
    asked = {(public.name, name) for public in THINGS for name in raised_by(public)}
    assert not NEVER.keys() - asked


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Adds.\n\nArgs:\n    a: a number.\n\nReturns:\n    A number.\n\nSource: none.\n", "Example"),
        ("Adds.\n\nReturns:\n    A number.\n\nSource: none.\n\nExample:\n    >>> 1\n", "Args: missing ['a']"),
        ("Adds.\n\nArgs:\n    a: 1.\n    b: 2.\n\nSource: none.\n\nExample:\n    >>> 1\n", "Args: strange ['b']"),
        ("Adds\nnumbers.\n", "a first line that stands alone"),
        ("Adds.\n\nRaises:\n    TypoError: never.\n", "Raises: a name that is no exception"),
        ("Adds.\n\nRaises:\n    GraphError: a is 0.\n    GraphError: a is nil.\n", "Raises: an exception twice"),
        ("Adds.\n", "Raises: GraphError"),
        ("Adds.\n", "Returns"),
        ("Adds.\n\nRaises:\n    GraphError: a is 0.\n", "Source"),
    ],
)
def test_the_lint_finds(text: str, fault: str) -> None:
    def add(a: int) -> int:
        if a == 0:
            raise errors.GraphError("a is 0")
        return a

    add.__module__, add.__doc__ = "vgraph.example", text
    assert fault in set(faults_of(Public("add", add)))
