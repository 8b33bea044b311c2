"""What users can call: every public function, class, method and property, by the name they reach it by.

Takes: the packages that users import. Gives: things with a docstring, each once. Read by the lint of docstrings.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGES = (
    "vgraph",
    *(f"vgraph.{part}" for part in "function ops sparse tdl nn data distributed sampling compat errors cli".split()),
)
SEALED = ("vgraph", "vgraph.tdl", "vgraph.cli", "vgraph.compat")  # what ``__all__`` leaves out is not public there
# what public functions give or hand to a user's function, and none of these packages exports
GIVEN = (
    "vgraph.api.dense.parallel:Plan",
    "vgraph.api.dense.step_result:StepResult",
    "vgraph.api.dense.worker:Worker",
    "vgraph.api.explain_report:FunctionSteps",
    "vgraph.api.explain_report:Hoisted",
    "vgraph.api.explain_report:PhaseSteps",
    "vgraph.api.explain_report:ProgramSteps",
    "vgraph.api.explain_report:Step",
    "vgraph.api.explain_report:Stored",
    "vgraph.api.explanation:Explanation",
    "vgraph.api.messages.batches:EdgeBatch",
    "vgraph.api.messages.batches:NodeBatch",
    "vgraph.graphs.frame:Frame",
    "vgraph.graphs.frame:Scheme",
    "vgraph.graphs.views:FeatureView",
    "vgraph.graphs.views:LocalScope",
    "vgraph.ir.partitioned:Layout",
    "vgraph.partition.accounting.footprint:Footprint",
    "vgraph.partition.accounting.machines:Link",
    "vgraph.partition.accounting.machines:Machine",
    "vgraph.partition.accounting.simulate:Simulation",
    "vgraph.partition.placement.profile:Profile",
    "vgraph.partition.rewrite.rewrite:RewriteOptions",
)
# classes that users do not make -> who makes them
MADE_BY = {
    "vgraph.sparse.SparseMatrix": "vgraph.sparse.spmatrix",
    "vgraph.GrowingGraph": "vgraph.grow",
    "vgraph.Placement": "vgraph.place",
    "vgraph.Server": "vgraph.serve",
    "vgraph.Vertex": "vgraph.VertexFunction",
    "vgraph.api.dense.parallel.Plan": "vgraph.parallelize",
    "vgraph.api.dense.worker.Worker": "Plan.launch",
    "vgraph.api.messages.batches.EdgeBatch": "Graph.update_all",
    "vgraph.api.messages.batches.NodeBatch": "Graph.update_all",
    "vgraph.distributed.PartitionedGraph": "PartitionedGraph.open",
    "vgraph.distributed.StoredPart": "PartitionedGraph.part",
    "vgraph.graphs.frame.Frame": "Graph.ndata",
    "vgraph.graphs.views.FeatureView": "Graph.nodes",
    "vgraph.graphs.views.LocalScope": "Graph.local_scope",
}


@dataclass(frozen=True)
class Public:
    """A function, a class, or a method or property of a class, with the class that defines it."""

    name: str
    thing: Any
    owner: type | None = None

    @property
    def is_property(self) -> bool:
        return isinstance(self.thing, property)

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.thing)

    @property
    def is_of_graph(self) -> bool:
        return self.name.startswith("vgraph.Graph.")

    @property
    def function(self) -> Any:
        """What runs when it is called or read."""
        if self.is_class:
            return self.thing.__init__
        return self.thing.fget if self.is_property else getattr(self.thing, "__func__", self.thing)

    @property
    def text(self) -> str:
        """Its docstring; a class and a method do not inherit theirs."""
        own = vars(self.thing).get("__doc__") if self.is_class else self.thing.__doc__
        return inspect.cleandoc(own or "")


def public_things() -> list[Public]:
    """Every public thing once, under the first name that leads to it."""
    found: dict[int, Public] = {}
    for public in (*_exported(), *_given()):
        found.setdefault(id(public.thing), public)
        for member in _members(public) if public.is_class else ():
            found.setdefault(id(member.thing), member)
    return list(found.values())


def _exported() -> Iterator[Public]:
    for package in PACKAGES:
        module = import_module(package)
        own = [name for name in vars(module) if _is_own(module, name)] if package not in SEALED else []
        for name in sorted({*getattr(module, "__all__", ()), *own}):
            thing = getattr(module, name)
            if callable(thing) and not isinstance(thing, ModuleType):
                yield Public(f"{package}.{name}", thing)


def _is_own(module: ModuleType, name: str) -> bool:
    return not name.startswith("_") and getattr(vars(module)[name], "__module__", None) == module.__name__


def _given() -> Iterator[Public]:
    for place in GIVEN:
        module, _, name = place.partition(":")
        yield Public(f"{module}.{name}", getattr(import_module(module), name))


def _members(public: Public) -> Iterator[Public]:
    """Public methods and properties, also those of our own classes that it inherits from."""
    seen: set[str] = set()
    for owner in public.thing.__mro__:
        if not owner.__module__.startswith("vgraph"):
            continue
        for name, member in vars(owner).items():
            thing = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            is_member = not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property))
            if is_member and name not in seen:  # what a class overrides is not its member
                seen.add(name)
                yield Public(f"{public.name}.{name}", thing, owner)
