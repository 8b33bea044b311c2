"""What a program for DGL lacks is told before it runs, with file and line, and with no false alarm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vgraph.compat import __main__ as command
from vgraph.compat.check import absences_in, report
from vgraph.compat.script import check_script, run_script

PROGRAMS = Path(__file__).parent / "programs"


def told(source: str, folder: Path) -> list[tuple[int, str]]:
    """Lines and names that a program lacks."""
    file = folder / "program.py"
    file.write_text(source, encoding="utf-8")
    return [(absence.line, absence.name) for absence in absences_in(file)]


ABSENT = {
    "import dgl.nowhere": (1, "dgl.nowhere"),
    "import dgl.nowhere.further as x\nx.y": (1, "dgl.nowhere.further"),
    "import dgl.function as fn\nfn.absent('h')": (2, "dgl.function.absent"),
    "from dgl.nn import AbsentConv": (1, "dgl.nn.AbsentConv"),
    "from dgl.nn.pytorch import AbsentConv as A\nA(1)": (1, "dgl.nn.pytorch.AbsentConv"),
    "from dgl import function as fn\nfn.absent": (2, "dgl.function.absent"),
    "import dgl\ndef f():\n    return dgl.absent(3)": (3, "dgl.absent"),
    "import dgl as d\nd.nn.pytorch.conv.absent": (2, "dgl.nn.pytorch.conv.absent"),
    "import dgl\nconv = dgl.nn.pytorch.conv\nconv.absent": (3, "dgl.nn.pytorch.conv.absent"),
    "try:\n    import dgl\nexcept ImportError:\n    dgl = None\ndgl.absent": (5, "dgl.absent"),
    "import dgl\n[dgl.absent(x) for x in ()]": (2, "dgl.absent"),
    "import dgl\nclass A(dgl.nn.Absent): pass": (2, "dgl.nn.Absent"),
    "import dgl\ng = dgl.graph(([0], [1]))\ng = g.to('cpu')\ng.absent()": (4, "dgl.DGLGraph.absent"),
    "import dgl\ndef f(g: dgl.DGLGraph):\n    g.absent": (3, "dgl.DGLGraph.absent"),
    "import dgl\ndgl.add_self_loop(dgl.graph(([0], [1]))).absent": (2, "dgl.DGLGraph.absent"),
    "import dgl\ndgl.DGLGraph.absent": (2, "dgl.DGLGraph.absent"),
}
THERE = [
    "import dgl.nn.pytorch.conv.gatconv, dgl.heterograph, dgl.batch\ndgl.batch([]); dgl.heterograph({})",
    "from dgl.heterograph import DGLHeteroGraph\nfrom dgl.nn import *\nfrom .dgl import x\nimport torch.absent",
    "import dgl\ndef f(dgl):\n    dgl.absent",
    "import dgl\ndef f():\n    dgl = 3\n    dgl.absent",
    "import dgl\nfor dgl in (): pass\ndgl.absent",
    "import dgl\n[dgl.absent for dgl in ()]",
    "import dgl\ng = dgl.graph(([0], [1]))\ng = other(g)\ng.absent",
    "import dgl\ng = dgl.graph(([0], [1]))\ng.mine = 3\ng.mine",
    "import dgl\ng = dgl.graph(([0], [1]))\ndef f():\n    global g\n    g = 3\ng.absent",
    "import dgl\ng, labels = dgl.data.KarateClubDataset()[0]\ng.absent",
    "import dgl\ng = dgl.graph(([0], [1]))\ng.ndata['h'].absent\ng.add_edges(0, 1)",
    "import dgl\ndgl.mine = 3\ndgl.NID.absent",
]


@pytest.mark.parametrize("source", ABSENT)
def test_what_is_absent(source: str, tmp_path: Path) -> None:
    assert told(source, tmp_path) == [ABSENT[source]]


@pytest.mark.parametrize("source", THERE)
def test_what_is_there_or_is_not_surely_dgls(source: str, tmp_path: Path) -> None:
    assert told(source, tmp_path) == []


def test_programs_that_run_lack_nothing() -> None:
    assert not [absence for file in PROGRAMS.glob("*.py") for absence in absences_in(file)]


def test_cures_name_where_a_thing_is(tmp_path: Path) -> None:
    source = """
from dgl.ops import GraphConv
from dgl.nn import GrafConv
import dgl.graphbolt
try:
    from dgl.nn import Absent
except ImportError:
    Absent = None
"""
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    said = [str(absence).partition("a.py:")[2] for absence in absences_in(tmp_path / "a.py")]
    assert said[0] == "2: dgl.ops.GraphConv is absent: it is here as dgl.nn.GraphConv"
    assert said[1].startswith("3: dgl.nn.GrafConv is absent: is dgl.nn.GraphConv meant? Else ")
    assert said[2].startswith("4: dgl.graphbolt is absent: it came after DGL 1.x")
    assert said[3].startswith("6: dgl.nn.Absent is absent (the program catches the error): ")


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("deep", ".venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("import dgl\ndgl.absent\ndgl.absent", encoding="utf-8")
    (tmp_path / "b.py").write_text("raise SystemExit('it ran')\nimport dgl", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["vgraph.compat", "--check", str(tmp_path)])
    assert command.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": dgl")[0] for line in lines[:2]] == [f"{tmp_path}/deep/a.py:{n}" for n in (2, 3)]
    assert lines[2] == "1 name is absent, of those in 2 files; docs/coming_from/dgl.md says what to do"
    monkeypatch.setattr(sys, "argv", ["vgraph.compat", "--check", str(tmp_path / "b.py")])
    assert command.main() == 0
    assert capsys.readouterr().out == "every name of DGL in 1 file is here; docs/coming_from/dgl.md says what differs\n"


def test_what_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("x = 3\nprint 3", encoding="utf-8")
    said: list[str] = []
    assert report(tmp_path, said.append) == 1
    assert said[0].startswith(f"{tmp_path}/a.py:2: Python that this version reads is absent: ")
    for arguments, wanted in ((["nowhere"], "there is no nowhere"), ([], "--check what?")):
        monkeypatch.setattr(sys, "argv", ["vgraph.compat", "--check", *arguments])
        assert command.main() == 2
        assert capsys.readouterr().err == f"vgraph.compat: {wanted}\n"


def test_a_module_runs_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "__main__.py").write_text(
        "import sys\nfrom . import x\nprint(sys.argv[1:], x, __name__)", encoding="utf-8"
    )
    (tmp_path / "beside" / "__init__.py").write_text("x = 3", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["-m", "beside", "--b"]
    assert check_script("vgraph.compat", arguments) is None
    run_script(arguments)
    assert capsys.readouterr().out == "['--b'] 3 __main__\n"
    assert check_script("vgraph.compat", ["-m"]) == 2


def test_pages_that_errors_name_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert (docs / "coming_from" / "dgl.md").is_file()
