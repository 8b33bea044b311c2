"""The name dgl leads to vgraph when asked, and never by itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import forked_python

PROJECT = Path(__file__).parent.parent.parent


def run(code: str, folder: Path, *arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")])
    command = [forked_python.command(), *(["-m", "vgraph.compat"] if module else []), str(script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": search}
    )


def test_a_script_runs_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 3", encoding="utf-8")
    code = """
import sys, beside, dgl.nn.pytorch as nn, dgl.function as fn
print(sys.argv[1:], beside.x, __name__, nn.GraphConv.__module__)
"""
    done = run(code, tmp_path, "a", "--b", module=True)
    assert (done.stdout, done.returncode) == ("['a', '--b'] 3 __main__ vgraph.nn.graph_conv\n", 0)


def test_many_ways_to_import(tmp_path: Path) -> None:
    code = """
import dgl
from dgl import DGLGraph, DGLError, function as fn
from dgl.base import DGLError as Error, NID, ALL, dgl_warning
from dgl._ffi.base import DGLError as Foreign
from dgl.udf import NodeBatch, EdgeBatch
from dgl.nn.pytorch import GraphConv, GATConv
from dgl.nn.pytorch.conv import SAGEConv
from dgl.nn.pytorch.glob import SumPooling
from dgl.nn.pytorch.softmax import edge_softmax
from dgl.nn.functional import edge_softmax as same
from dgl.utils import expand_as_pair
from dgl.data.utils import load_graphs, save_graphs, download
from dgl.transforms import AddSelfLoop, Compose, ToSimple
from dgl.readout import sum_nodes
import dgl.init, dgl.ops as ops, dgl.backend as F
from dgl.nn.pytorch import *
import dgl.heterograph, dgl.batch
from dgl.heterograph import DGLHeteroGraph
from dgl.dataloading.negative_sampler import PerSourceUniform, Uniform
assert PerSourceUniform is Uniform
from dgl.nn.pytorch.conv.pnaconv import PNAConv as Own
from dgl.data.dgl_dataset import DGLDataset
from dgl.transforms.functional import to_bidirected, shortest_dist
assert PNAConv is Own and "GATConv" in dir(dgl.nn) and "Any" not in dir(dgl) and "batch" in dir(dgl)
exec("from dgl.backend import *; tensor([1.0], float32), unique; from dgl.utils import *; expand_as_pair", {})
assert dgl.heterograph({("a", "r", "b"): ([0], [0])}).ntypes == ["a", "b"]
assert dgl.batch([dgl.graph(([0], [1]))]).batch_size == 1
g = Compose([AddSelfLoop(), ToSimple()])(dgl.graph(([0], [1])))
assert Error is Foreign is DGLError and isinstance(g, DGLGraph) and g.num_edges() == 3
g.set_n_initializer(dgl.init.zero_initializer)
try:
    g.ndata["missing"]
except DGLError as error:
    print(type(error).__name__)
try:
    dgl.no_such_thing
except AttributeError as error:
    print(error)
for statement in ("from dgl import nothing", "import dgl.nn.nothing", "from dgl.nn import nothing"):
    try:
        exec(statement)
    except ImportError as error:
        print(error)
import sys
for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
    del sys.modules[name]  # as in a process that this one spawns: it gets sys.path alone
import dgl as anew
assert anew is not dgl and anew is sys.modules["dgl"] and anew.graph(([0], [1])).num_edges() == 1
"""
    done = run(code, tmp_path, module=True)
    assert done.returncode == 0, done.stderr
    assert "hidden" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["NameLookupError", "dgl has no 'no_such_thing' in vgraph"]
    for module in ("dgl", "dgl.nn"):
        place = lines.index(f"{module} has no 'nothing' in vgraph")
        assert "cure: docs/coming_from/dgl.md" in lines[place + 2]
    assert lines.count("dgl.nn has no 'nothing' in vgraph") == 2


def test_names_that_modules_of_dgl_alone_have(tmp_path: Path) -> None:
    """Whatever stands for the module, the error is vgraph's."""
    code = """
for place in ("partition.NDArrayPartition", "function.Nothing", "ops.nothing", "init.nothing", "base.nothing"):
    module, name = place.split(".")
    try:
        exec(f"from dgl.{module} import {name}")
    except ImportError as error:
        print(str(error).splitlines()[0])
"""
    lines = run(code, tmp_path, module=True).stdout.splitlines()
    assert len(lines) == 5 and lines[0] == "dgl.partition has no 'NDArrayPartition' in vgraph"
    assert all(line.endswith(" in vgraph") for line in lines)


def test_it_is_never_there_by_itself(tmp_path: Path) -> None:
    done = run("import vgraph, vgraph.compat, sys\nprint('dgl' in sys.modules)", tmp_path)
    assert done.stdout == "False\n"


def test_a_real_dgl_is_hidden_and_that_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "dgl.py").write_text("real = True", encoding="utf-8")
    code = "from vgraph.compat import install\ninstall()\ninstall()\nimport dgl\nprint(hasattr(dgl, 'real'))"
    done = run(code, tmp_path)
    assert (done.stdout, done.stderr.count("the installed dgl is hidden from this process")) == ("False\n", 1)
    done = run("import dgl, vgraph.compat\nvgraph.compat.install()", tmp_path)
    assert "the real dgl is imported already" in done.stderr


def test_vgraph_itself_as_dgl(tmp_path: Path) -> None:
    code = "import vgraph as dgl\nprint(dgl.NID, dgl.nn.GATConv.__name__, dgl.DGLError.__name__)"
    assert run(code, tmp_path).stdout == "_ID GATConv VGraphError\n"


def test_what_is_no_script(tmp_path: Path) -> None:
    search = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])}
    base = [forked_python.command(), "-m", "vgraph.compat"]
    missing = subprocess.run([*base, "nothing.py"], capture_output=True, text=True, check=False, env=search)
    assert (missing.returncode, missing.stderr) == (2, "vgraph.compat: there is no script nothing.py\n")
    usage = subprocess.run(base, capture_output=True, text=True, check=False, env=search)
    assert usage.returncode == 2
    assert usage.stderr.startswith("usage:")
