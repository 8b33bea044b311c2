"""What names stand for in a scope of a program: modules of DGL and things in them, or values of expressions.

Takes: the syntax of a scope. Gives: all that its names are bound to. Runs once per scope.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, order=True)
class Place:
    """A module of DGL, as an import names it, and attributes from there on."""

    module: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argument:
    """An argument of a function with its annotation."""

    annotation: ast.expr


Bound: TypeAlias = Place | Argument | ast.expr | None  # None: something that is not looked into


@dataclass(eq=False)
class Scope:
    """A module, a class, a function or a comprehension."""

    parent: Scope | None = None
    is_class: bool = False
    bound: dict[str, list[Bound]] = field(default_factory=dict[str, list[Bound]])
    elsewhere: set[str] = field(default_factory=set[str])  # names that are global or nonlocal

    def bind(self, name: str, value: Bound) -> None:
        self.bound.setdefault(name, []).append(value)

    def owner_of(self, name: str) -> Scope | None:
        """The scope that a name belongs to, as seen from within this one."""
        scope: Scope | None = self
        while scope is not None:
            is_seen = scope is self or not scope.is_class
            if is_seen and name in scope.bound and name not in scope.elsewhere:
                return scope
            scope = scope.parent
        return None


def scope_of(body: Iterable[ast.AST], parent: Scope | None, *, is_class: bool = False) -> Scope:
    """The scope of some statements."""
    scope = Scope(parent, is_class)
    for node in body:
        _Bindings(scope).visit(node)
    return scope


def scope_of_function(node: Function, parent: Scope) -> Scope:
    """The scope of a function: its arguments, and what its statements bind."""
    scope = scope_of([node.body] if isinstance(node, ast.Lambda) else node.body, parent)
    a = node.args
    for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs):
        scope.bind(argument.arg, None if argument.annotation is None else Argument(argument.annotation))
    for rest in (a.vararg, a.kwarg):
        if rest is not None:
            scope.bind(rest.arg, None)
    return scope


def scope_of_comprehension(node: Comprehension, parent: Scope) -> Scope:
    """The scope of a comprehension: its loop variables."""
    return scope_of([generator.target for generator in node.generators], parent)


class _Bindings(ast.NodeVisitor):
    """Tells a scope what its statements bind names to; scopes within it are for others."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            top = one.name.partition(".")[0]
            module = one.name if one.asname else top
            self.scope.bind(one.asname or top, Place(module) if top == "dgl" else None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        place = node.level == 0 and node.module is not None and node.module.partition(".")[0] == "dgl"
        for one in node.names:
            self.scope.bind(one.asname or one.name, Place(node.module or "", (one.name,)) if place else None)

    def visit_Assign(self, node: ast.Assign) -> None:
        match node.targets:
            case [ast.Name(id=name)]:
                self.scope.bind(name, node.value)
                self.visit(node.value)
            case _:
                self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.scope.bind(node.id, None)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.scope.elsewhere.update(node.names)
        above = self.scope.parent
        while above is not None:  # nobody knows from here on what they are bound to
            for name in node.names:
                above.bind(name, None)
            above = above.parent

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    def _visit_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.scope.bind(node.name, None)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_scope

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    def _skip(self, node: ast.AST) -> None:
        """A lambda or a comprehension has names of its own."""

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _skip
