"""The rules of the house that a machine can check; CONTRIBUTING.md gives the reasons."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

import networkx as nx
import pytest

PROJECT = Path(__file__).resolve().parent.parent
FOLDERS = ("vgraph", "kernels", "examples", "tests", "benchmarks")
SOURCES = {".py", ".h", ".cuh", ".cpp", ".cu"}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 7  # arguments of a call that are not named
MAX_ANY = 600  # of vgraph in all: what torch, files and users give without a type

EMPTY_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "misc", "manager"}

# Whoever reads a program does not meet the user's word for a vertex, nor the other way round.
VERTEX_FOLDERS = ("vgraph/ir/", "vgraph/passes/", "vgraph/scheduler/", "vgraph/memory/", "vgraph/runtime/")

# Only these files of vgraph may import these modules; a second one is worth an ADR.
RESTRICTED = {
    "torch.fx": {"vgraph/api/torch_compile/probe.py"},
    "torch.distributed": {
        "vgraph/runtime/distributed/dtensors.py",
        "vgraph/runtime/distributed/groups.py",
        "vgraph/runtime/distributed/process_group.py",
        "vgraph/runtime/distributed/ranks.py",
        "vgraph/runtime/distributed/peers.py",
    },
    "torch.utils._python_dispatch": {
        "vgraph/capture/record/modes.py",
        "vgraph/capture/record/tracer.py",
        "vgraph/capture/step/tracer.py",
    },
    "torch._subclasses": {"vgraph/capture/step/fake_results.py"},
    "torch._decomp": {"vgraph/capture/step/tracer.py"},
    "torch.autograd._get_sequence_nr": {"vgraph/capture/step/tracer.py"},
    "torch.overrides._get_current_function_mode_stack": {"vgraph/capture/record/function_mode.py"},
    "torch.overrides._pop_mode": {"vgraph/capture/record/function_mode.py"},
    "torch.overrides._push_mode": {"vgraph/capture/record/function_mode.py"},
    "torch._assert_async": {"vgraph/nn/inputs.py"},
    "torch._C": {
        "vgraph/capture/guards/functorch_checks.py",
        "vgraph/capture/record/function_mode.py",
        "vgraph/capture/record/modes.py",
        "vgraph/capture/step/fake_results.py",
        "vgraph/runtime/asked_gradients.py",
    },
    "torch.autograd.forward_ad._current_level": {"vgraph/capture/guards/functorch_checks.py"},
    "cupy": {"vgraph/runtime/cuda/driver.py"},
}

PUBLIC_MODULES = {"vgraph", "vgraph.function", "vgraph.nn", "vgraph.data", "vgraph.errors"}
PUBLIC_MODULES |= {"vgraph.tdl", "vgraph.compat", "vgraph.sampling"}

# Files that import one another, and why they still do.
KNOWN_CIRCLES: dict[frozenset[str], str] = {}

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|tmp|home|Users)/")


@cache
def project_files() -> tuple[str, ...]:
    """Every file that is or could be committed, as a path from the project's root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        found = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*")]
        found += PROJECT.glob("*.md")
        listed = [path.relative_to(PROJECT).as_posix() for path in found if path.is_file()]
    else:
        listed = [line for line in done.stdout.splitlines() if (PROJECT / line).is_file()]
    return tuple(sorted(name for name in listed if "__pycache__" not in name))


def source_files(*folders: str, suffixes: set[str] = SOURCES) -> list[str]:
    return [
        name
        for name in project_files()
        if name.startswith(tuple(f"{folder}/" for folder in folders)) and PurePosixPath(name).suffix in suffixes
    ]


def python_files(*folders: str) -> list[str]:
    return source_files(*folders, suffixes={".py"})


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@cache
def parse(name: str) -> ast.Module:
    return ast.parse(read(name), filename=name)


@pytest.fixture(scope="module", autouse=True)
def _trees_go() -> Iterator[None]:
    """A collection would go through the trees of all files so far, none of which is garbage."""
    gc.disable()
    yield
    parse.cache_clear()
    gc.enable()


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported; ``from a import b`` gives ``a.b``."""
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            yield from ((item.lineno, alias.name) for alias in item.names)
        elif isinstance(item, ast.ImportFrom) and item.module and not item.level:
            yield from ((item.lineno, f"{item.module}.{alias.name}") for alias in item.names)


def dotted_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every attribute chain that begins at a plain name."""
    for item in ast.walk(tree):
        parts: list[str] = []
        inner = item
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name):
            yield inner.lineno, ".".join([inner.id, *reversed(parts)])


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file; expressions, which are most of it, are not visited."""
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield item
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(item, field, ())


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that the file itself names; what others named may be read."""
    for item in ast.walk(tree):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield item.lineno, item.name
        elif isinstance(item, ast.arg):
            yield item.lineno, item.arg
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.lineno, item.id
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            yield item.lineno, item.attr
        elif isinstance(item, (ast.Import, ast.ImportFrom)):
            yield from ((item.lineno, alias.asname) for alias in item.names if alias.asname)


def words(name: str) -> set[str]:
    """The words of an identifier, whichever way it is written.

    >>> sorted(words("num_nodes") | words("TreeNode"))
    ['node', 'nodes', 'num', 'tree']
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def is_private_to_torch(name: str) -> bool:
    """Whether a dotted name goes through a private module of torch; ``_softmax`` is an operator."""
    parts = name.split(".")
    if parts[0] != "torch" or is_within(name, "torch.ops"):
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in parts)


def told(wrong: Sequence[str], rule: str) -> str:
    """The rule with what breaks it; nothing, if nothing does."""
    return "\n  ".join([rule, *wrong]) if wrong else ""


# ------------------------------------------------------------------ sizes and names


def test_files_are_short() -> None:
    lengths = {name: read(name).count("\n") for name in source_files(*FOLDERS)}
    long = [f"{name} has {lines}" for name, lines in lengths.items() if lines > MAX_FILE_LINES]
    assert not told(long, f"files over {MAX_FILE_LINES} lines: divide them by what they do")


def test_functions_are_short() -> None:
    long = [
        f"{name}:{item.lineno} {item.name} has {length} lines"
        for name in python_files(*FOLDERS)
        for item in functions_in(parse.__wrapped__(name))  # of which others read few
        if (length := (item.end_lineno or item.lineno) - item.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not told(long, f"functions over {MAX_FUNCTION_LINES} lines")


def test_long_calls_name_their_arguments() -> None:
    wrong = [
        f"{name}:{item.lineno} {ast.unparse(item.func)}"
        for name in python_files("vgraph", "kernels")
        for item in ast.walk(parse(name))
        if isinstance(item, ast.Call) and sum(not isinstance(arg, ast.Starred) for arg in item.args) > MAX_POSITIONAL
    ]
    assert not told(wrong, f"calls with more than {MAX_POSITIONAL} arguments by position: name them")


def test_little_is_any() -> None:
    found = sum(
        isinstance(item, ast.Name) and item.id == "Any"
        for name in python_files("vgraph")
        for item in ast.walk(parse(name))
    )
    assert found <= MAX_ANY, f"Any stands {found} times in vgraph: a type, a protocol or object says more"


def test_modules_are_named_for_what_they_do() -> None:
    paths = [PurePosixPath(name).with_suffix("") for name in source_files(*FOLDERS)]
    empty = [str(p) for p in paths if any(EMPTY_NAMES & set(part.split("_")) for part in p.parts)]
    assert not told(empty, "a name that says nothing: call the module what it does")


def test_modules_say_what_they_take_and_give() -> None:
    mute = [n for n in python_files("vgraph", "kernels") if not ast.get_docstring(parse(n))]
    assert not told(mute, "modules without a docstring (what it takes and gives, how often it runs, its source)")


def test_a_vertex_is_a_vertex() -> None:
    wrong = [
        f"{name}:{line} {bound}"
        for name in python_files("vgraph")
        if name.startswith(VERTEX_FOLDERS)
        for line, bound in bound_names(parse(name))
        if {"node", "nodes"} & words(bound)
    ]
    assert not told(wrong, "below the API a vertex is a vertex, an op is an op")


# ------------------------------------------------------------------ imports


def test_import_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr}"


@cache
def names_in(name: str) -> tuple[tuple[int, str], ...]:
    """Lines of a file with what they import, or name with dots."""
    return (*imported_modules(parse(name)), *dotted_names(parse(name)))


@pytest.mark.parametrize("module", RESTRICTED)
def test_restricted_module(module: str) -> None:
    wrong = [
        f"{name}:{line} {used}"
        for name in python_files("vgraph", "kernels")
        if name not in RESTRICTED[module]
        for line, used in names_in(name)
        if is_within(used, module)
    ]
    assert not told(wrong, f"{module} belongs in {sorted(RESTRICTED[module])}")


def module_name(name: str) -> str:
    """The dotted name of a file.

    >>> module_name("vgraph/api/__init__.py"), module_name("vgraph/ops.py")
    ('vgraph.api', 'vgraph.ops')
    """
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules_asked_for(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names of all imports, wherever they stand, and of ``import_module`` of a text."""
    for item in ast.walk(tree):
        if isinstance(item, ast.ImportFrom) and item.level:
            above = package.split(".")[: len(package.split(".")) - item.level + 1]
            start = ".".join([*above, *([item.module] if item.module else [])])
            yield from (f"{start}.{alias.name}" for alias in item.names)
        elif isinstance(item, ast.Call) and ast.unparse(item.func).split(".")[-1] == "import_module" and item.args:
            if isinstance(item.args[0], ast.Constant):
                yield str(item.args[0].value)
    yield from (used for _, used in imported_modules(tree))


def import_graph(sources: dict[str, ast.Module], packages: frozenset[str]) -> nx.DiGraph:
    """Which module imports which; imports inside functions and for type checkers alone are imports."""
    found: nx.DiGraph = nx.DiGraph()
    for name, tree in sources.items():
        found.add_node(name)
        for used in modules_asked_for(tree, name if name in packages else name.rpartition(".")[0]):
            known = next((one for one in (used, used.rpartition(".")[0]) if one in sources), name)
            if known != name:
                found.add_edge(name, known)
    return found


def circles(graph: nx.DiGraph) -> set[frozenset[str]]:
    return {frozenset(part) for part in nx.strongly_connected_components(graph) if len(part) > 1}


def test_no_files_import_one_another() -> None:
    """What ``vgraph/__init__.py`` imports when it is asked for is named by no text, and stands above all else."""
    files = python_files("vgraph")
    packages = frozenset(module_name(name) for name in files if name.endswith("/__init__.py"))
    found = circles(import_graph({module_name(name): parse(name) for name in files}, packages))
    wrong = [" <-> ".join(sorted(circle)) for circle in found - KNOWN_CIRCLES.keys()]
    assert not told(wrong, "files that import one another, if only for types: a third file holds what both need")
    cured = [" <-> ".join(sorted(circle)) for circle in KNOWN_CIRCLES.keys() - found]
    assert not told(cured, "circles that are no more: strike them from KNOWN_CIRCLES")


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "from p import a",
        "from . import a",
        "from .a import x",
        "def f():\n    from p.a import x",
        "if TYPE_CHECKING:\n    from p.a import x",
        "import_module('p.a')",
        "importlib.import_module('p.a')",
    ],
)
def test_circles_are_seen(back: str) -> None:
    sources = {"p": ast.parse(""), "p.a": ast.parse("from p.b import y"), "p.b": ast.parse(back)}
    assert circles(import_graph(sources, frozenset({"p"}))) == {frozenset({"p.a", "p.b"})}


def test_no_private_module_of_torch() -> None:
    wrong = [
        f"{name}:{line} {used}"
        for name in python_files("vgraph", "kernels", "examples", "benchmarks")
        for line, used in (*imported_modules(parse(name)), *dotted_names(parse(name)))
        if is_private_to_torch(used)
        and not any(name in files and is_within(used, m) for m, files in RESTRICTED.items())
    ]
    assert not told(wrong, "private to torch: what a release may remove")


def test_examples_use_public_names() -> None:
    wrong = [
        f"{name}:{line} {used}"
        for name in python_files("examples")
        for line, used in imported_modules(parse(name))
        if used.split(".")[0] in ("vgraph", "vgraph_kernels")
        and used not in PUBLIC_MODULES
        and used.rpartition(".")[0] not in PUBLIC_MODULES
    ]
    assert not told(wrong, "an example imports what a user may import")


# ------------------------------------------------------------------ safety and documentation


def unsafe_loads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Ways to read a file that let the file run code."""
    for line, used in imported_modules(tree):
        if used.split(".")[0] in ("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"):
            yield line, f"import of {used}"
    for item in ast.walk(tree):
        if not isinstance(item, ast.Call):
            continue
        called = ast.unparse(item.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in item.keywords}
        if called == "torch.load" and given.get("weights_only") != "True":
            yield item.lineno, "torch.load without weights_only=True"
        if given.get("allow_pickle", "False") != "False":
            yield item.lineno, f"{called} with allow_pickle"


def test_loading_runs_no_code() -> None:
    wrong = [f"{n}:{line} {what}" for n in python_files("vgraph") for line, what in unsafe_loads(parse(n))]
    assert not told(wrong, "a file must not be able to run code")


def test_sizes_are_checked_in_one_place() -> None:
    """What loads by itself believes sizes."""
    loaders = {"torch.load", "np.load", "np.fromfile", "gzip.decompress", "zlib.decompress", "shutil.unpack_archive"}
    wrong = [
        f"{name}:{line} {used}"
        for name in python_files("vgraph")
        if not name.startswith("vgraph/files/")
        for line, used in dotted_names(parse(name))
        if used in loaders
    ]
    assert not told(wrong, "files of others are read through vgraph/files")


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import pickle", 1),
        ("torch.load(path)", 1),
        ("torch.load(path, weights_only=False)", 1),
        ("torch.load(path, weights_only=True)", 0),
        ("np.load(path, allow_pickle=True)", 1),
    ],
)
def test_unsafe_loads_are_seen(source: str, count: int) -> None:
    assert len(list(unsafe_loads(ast.parse(source)))) == count


def test_files_name_no_machine() -> None:
    wrong: list[str] = []
    for name in project_files():
        try:
            lines = read(name).splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        wrong += [f"{name}:{i} {ln}" for i, ln in enumerate(lines, 1) if MACHINE_PATH.search(ln)]
    assert not told(wrong, "a path that exists on one machine only")
