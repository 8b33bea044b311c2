"""Names of DGL that a program uses and vgraph does not have, each with its line and what to do.

Takes: a file or a folder of Python. Gives: absences, and a report of them. Runs once per process.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vgraph.api.graph import Graph
from vgraph.compat.check.scopes import Place
from vgraph.compat.check.uses import uses_in
from vgraph.compat.modules import HIDDEN, MODULES, lookup, names_of

PAGE = "docs/coming_from/dgl.md"
_SKIPPED = {"site-packages", "node_modules", "__pycache__"}
_COMMON = ("dgl", "dgl.nn", "dgl.data", "dgl.dataloading", "dgl.sampling", "dgl.transforms", "dgl.sparse", "dgl.ops")
# the beginning of an absent name -> what to do; the first that fits counts
_CURES = {
    "dgl.DGLGraph": "say it with other methods (g.edges(), g.adj(), g.ndata) or a function of dgl",
    "dgl.graphbolt": "it came after DGL 1.x: loaders of dgl.dataloading draw the same neighbours",
    "dgl.nn.mxnet": "vgraph is on torch: import dgl.nn.pytorch",
    "dgl.nn.tensorflow": "vgraph is on torch: import dgl.nn.pytorch",
    "dgl.nn": "put DGL's own source of it beside the program, which needs but names that are here, or say it with "
    "g.update_all",
    "dgl.data": "make the graphs with dgl.graph, in a class of yours over dgl.data.DGLDataset",
    "dgl.dataloading": "write it as a dgl.dataloading.Sampler, whose sample(g, indices) gives the minibatch",
    "dgl.distributed": "docs/guides/processes.md says what vgraph has instead",
    "dgl.": "say it with what there is",
}


class Absence(NamedTuple):
    """A name that a line uses and that is absent, or a file that is no Python."""

    path: str
    line: int
    name: str
    cure: str
    is_caught: bool

    def __str__(self) -> str:
        caught = " (the program catches the error)" if self.is_caught else ""
        return f"{self.path}:{self.line}: {self.name} is absent{caught}: {self.cure}"


def report(path: Path, say: Callable[[str], None] = print) -> int:
    """Says what is absent in a file, or in all of a folder; the exit status: 1 where there is something, else 0."""
    files = list(_files(path))
    found = [absence for file in files for absence in absences_in(file)]
    for absence in found:
        say(str(absence))
    counted = [absence for absence in found if not absence.is_caught]
    where = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    if counted:
        names = len({absence.name for absence in counted})
        say(f"{names} {'name is' if names == 1 else 'names are'} absent, of those in {where}; {PAGE} says what to do")
    else:
        say(f"every name of DGL in {where} is here; {PAGE} says what differs")
    return 1 if counted else 0


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*.py")):
        folders = file.relative_to(path).parts[:-1]
        if not any(folder.startswith(".") or folder in _SKIPPED for folder in folders):
            yield file


def absences_in(file: Path) -> list[Absence]:
    """What a file lacks, in the order of its lines; it is read, and no line of it runs."""
    try:
        with tokenize.open(file) as text:
            tree = ast.parse(text.read(), str(file))
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Absence(str(file), line, "Python that this version reads", f"{error}", is_caught=False)]
    found: list[Absence] = []
    for use in uses_in(tree, _gives_graph):
        name = _absent(use.place)
        is_known = name == use.place.module and any(name == absence.name for absence in found)
        if name is not None and not is_known:  # a module is absent where it is imported first
            found.append(Absence(str(file), use.line, name, _cure(name), use.is_caught))
    return list(dict.fromkeys(found))


@cache
def _absent(place: Place) -> str | None:
    """The first part of a place that there is not; None: all of it is there."""
    module = place.module
    if module not in MODULES:
        return module
    thing: object = None
    for part in place.attributes:
        name = f"{module}.{part}"
        if thing is not None:
            is_open = not _makes_graphs(thing)  # other things may get attributes when they run
            return None if is_open or hasattr(Graph, part) else f"dgl.DGLGraph.{part}"
        if name in MODULES and (name not in HIDDEN or part == place.attributes[-1]):
            module = name
            continue
        try:
            thing = lookup(module, part)
        except LookupError:
            return name
    return None


@cache
def _gives_graph(place: Place) -> bool:
    """Whether what stands at a place says that it returns a graph, or is the class of graphs."""
    if _absent(place) is not None or not place.attributes or f"{place.module}.{place.attributes[0]}" in MODULES:
        return False
    found = lookup(place.module, place.attributes[0])
    for part in place.attributes[1:]:
        found = getattr(found, part, None)
    if _makes_graphs(found):
        return True
    given = inspect.signature(found).return_annotation if inspect.isroutine(found) else None
    return given in ("Graph", "AnyGraph", "vgraph.Graph") or (given == "Self" and len(place.attributes) > 1)


@cache
def _cure(name: str) -> str:
    module, _, last = name.rpartition(".")
    for other in _COMMON:
        if other != module and name not in MODULES and last in names_of(other):
            return f"it is here as {other}.{last}"
    known = names_of(module) if module in MODULES else []
    near = difflib.get_close_matches(last, known, 1, 0.8)
    cure = next(text for beginning, text in _CURES.items() if name.startswith(beginning))
    return f"is {module}.{near[0]} meant? Else {cure}" if near else cure


def _makes_graphs(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Graph)
