"""The places of DGL that a program uses: its imports, attributes of modules, attributes of what are surely graphs.

Takes: the syntax of a file. Gives: uses with their lines. Runs once per file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import NamedTuple

from vgraph.compat.check.scopes import (
    Argument,
    Bound,
    Comprehension,
    Function,
    Place,
    Scope,
    scope_of,
    scope_of_comprehension,
    scope_of_function,
)

_CAUGHT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}
GRAPH = Place("dgl", ("DGLGraph",))


class Use(NamedTuple):
    """A place that a line uses; ``is_caught``: the program goes on where it is absent."""

    line: int
    place: Place
    is_caught: bool


def uses_in(tree: ast.Module, gives_graph: Callable[[Place], bool]) -> list[Use]:
    """Every use of DGL in a file, in the order of lines.

    ``gives_graph``: whether what stands at a place returns a graph when it is called.
    """
    visitor = _Uses(scope_of(tree.body, None), gives_graph)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    visitor.own = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
    visitor.visit_all(tree.body)
    return sorted(dict.fromkeys(visitor.found))


class _Uses(ast.NodeVisitor):
    """Walks a file with the scope that it is in."""

    def __init__(self, scope: Scope, gives_graph: Callable[[Place], bool]) -> None:
        self.scope, self.gives_graph = scope, gives_graph
        self.found: list[Use] = []
        self.own: set[str] = set()  # attributes that the program sets, on graphs perhaps
        self.is_caught = False

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # ------------------------------------------------------------ what is used
    def _use(self, node: ast.expr | ast.stmt, place: Place) -> None:
        self.found.append(Use(node.lineno, place, self.is_caught))

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            if one.name.partition(".")[0] == "dgl":
                self._use(node, Place(one.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None and node.module.partition(".")[0] == "dgl":
            for one in node.names:
                self._use(node, Place(node.module, () if one.name == "*" else (one.name,)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        place = self.place_of(node)
        if place is None and node.attr not in self.own and self.is_graph(node.value):
            place = Place(GRAPH.module, (*GRAPH.attributes, node.attr))
        if place is None or not isinstance(node.ctx, ast.Load):
            self.generic_visit(node)
        else:
            self._use(node, place)
            self.visit(node.value) if place.attributes[: len(GRAPH.attributes)] == GRAPH.attributes else None

    # ------------------------------------------------------------ what an expression is
    def place_of(self, node: ast.expr, scope: Scope | None = None, seen: tuple[object, ...] = ()) -> Place | None:
        """The place of DGL that an expression names, if it surely names one."""
        scope = scope or self.scope
        if isinstance(node, ast.Attribute):
            place = self.place_of(node.value, scope, seen)
            return None if place is None else Place(place.module, (*place.attributes, node.attr))
        owner = scope.owner_of(node.id) if isinstance(node, ast.Name) else None
        if owner is None or not isinstance(node, ast.Name) or (owner, node.id) in seen:
            return None
        bound, seen = owner.bound[node.id], (*seen, (owner, node.id))
        places = [self._bound_place(one, owner, seen) for one in bound if not _is_none(one)]
        return places[0] if places and all(one == places[0] for one in places) else None

    def _bound_place(self, one: Bound, owner: Scope, seen: tuple[object, ...]) -> Place | None:
        return self.place_of(one, owner, seen) if isinstance(one, ast.expr) else one if isinstance(one, Place) else None

    def is_graph(self, node: ast.expr, scope: Scope | None = None, seen: tuple[object, ...] = ()) -> bool:
        """Whether an expression gives a graph whatever happens; a name: whatever it is bound to."""
        scope = scope or self.scope
        if isinstance(node, ast.Call):
            place = self.place_of(node.func, scope)
            if place is None and isinstance(node.func, ast.Attribute) and self.is_graph(node.func.value, scope, seen):
                place = Place(GRAPH.module, (*GRAPH.attributes, node.func.attr))
            return place is not None and self.gives_graph(place)
        owner = scope.owner_of(node.id) if isinstance(node, ast.Name) else None
        if owner is None or not isinstance(node, ast.Name):
            return False
        if (owner, node.id) in seen:  # g = g.to(device): it is what it was
            return True
        seen = (*seen, (owner, node.id))
        return all(self._is_bound_graph(one, owner, seen) for one in owner.bound[node.id])

    def _is_bound_graph(self, one: Bound, owner: Scope, seen: tuple[object, ...]) -> bool:
        if isinstance(one, Argument):
            return self.place_of(one.annotation, owner.parent) in (GRAPH, Place("dgl", ("DGLHeteroGraph",)))
        return isinstance(one, ast.expr) and self.is_graph(one, owner, seen)

    # ------------------------------------------------------------ scopes, and what catches errors
    def _within(self, scope: Scope, nodes: Iterable[ast.AST], *, is_caught: bool = False) -> None:
        before = self.scope, self.is_caught
        self.scope, self.is_caught = scope, is_caught
        self.visit_all(nodes)
        self.scope, self.is_caught = before

    def _visit_function(self, node: Function) -> None:
        inner = scope_of_function(node, self.scope)
        self.visit(node.args)  # defaults and annotations belong outside
        if isinstance(node, ast.Lambda):
            self._within(inner, [node.body])
            return
        self.visit_all([*node.decorator_list, *([node.returns] if node.returns else [])])
        self._within(inner, node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        inner = scope_of(node.body, self.scope, is_class=True)
        self._within(inner, node.body, is_caught=self.is_caught)

    def _visit_comprehension(self, node: Comprehension) -> None:
        inner = scope_of_comprehension(node, self.scope)
        self._within(inner, ast.iter_child_nodes(node), is_caught=self.is_caught)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_Try(self, node: ast.Try) -> None:
        catches = any(_names(handler.type) & _CAUGHT or handler.type is None for handler in node.handlers)
        self._within(self.scope, node.body, is_caught=self.is_caught or catches)
        self.visit_all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._within(self.scope, node.body, is_caught=self.is_caught or "TYPE_CHECKING" in _names(node.test))
        self.visit_all(node.orelse)


def _is_none(one: Bound) -> bool:
    """``dgl = None``, as programs say where an import has failed."""
    return isinstance(one, ast.Constant) and one.value is None


def _names(node: ast.AST | None) -> set[str]:
    """The names in an expression."""
    nodes = [] if node is None else ast.walk(node)
    return {n.id if isinstance(n, ast.Name) else n.attr for n in nodes if isinstance(n, ast.Name | ast.Attribute)}
