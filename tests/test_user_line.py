"""Which line of the user's program an error names."""

from __future__ import annotations

import pickle
import types
from pathlib import Path

import pytest
import torch

import vgraph
from vgraph.errors import CycleError, VGraphError
from vgraph.nn import GraphConv
from vgraph.user_line import is_user_file, recorded_line, user_line

HERE = str(Path(__file__))


def test_an_error_names_the_line_that_raises_it() -> None:
    line = user_line()  # of this line
    error = VGraphError("it is so", cure="change it")  # two lines below
    number = int(line.rpartition(":")[2])
    assert line == f"{HERE}:{number}" and error.line == f"{HERE}:{number + 1}"
    assert str(error) == f"it is so\n  at {error.line}\n  cure: change it"


def test_no_line_and_a_given_one() -> None:
    assert str(VGraphError("it is so", line="")) == "it is so"
    assert VGraphError("it is so", line="data.csv:3").line == "data.csv:3"


def test_an_error_of_a_layer_names_the_line_that_called_it() -> None:
    with pytest.raises(VGraphError) as caught:
        GraphConv(2, 2, norm="none such")
    assert caught.value.line is not None and caught.value.line.startswith(HERE)


@pytest.mark.parametrize("library", [torch, vgraph])
def test_packages_whose_names_begin_as_a_librarys_are_users(library: types.ModuleType) -> None:
    assert library.__file__ is not None
    assert is_user_file(str(Path(library.__file__).parent) + "_models/layer.py")
    assert not is_user_file(library.__file__)


def test_files_of_users() -> None:
    layers = str(Path(vgraph.__file__).parent / "nn" / "conv.py")
    assert is_user_file("<stdin>") and is_user_file(HERE) and is_user_file(layers, layers=True)
    assert not is_user_file(layers)
    assert not any(map(is_user_file, (vgraph.__file__, torch.__file__, "<frozen runpy>", "<string>")))


def test_an_error_keeps_its_line_from_process_to_process() -> None:
    error = CycleError("a cycle", cycle=[1, 2], cure="cut it", line="train.py:3")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is CycleError and str(again) == str(error)
    assert (again.fact, again.cure, again.line, again.cycle) == ("a cycle", "cut it", "train.py:3", [1, 2])


def test_commands_have_no_line_of_a_user() -> None:
    folder, found = Path(vgraph.__file__).parent, dict[str, tuple[str, str]]()
    for name in ("cli", "nn"):
        code = compile("found[name] = user_line(), recorded_line()", str(folder / name / "made.py"), "exec")
        exec(code, {"user_line": user_line, "recorded_line": recorded_line, "found": found, "name": name})
    assert found["cli"] == ("", "")
    assert found["nn"][0].startswith(HERE) and found["nn"][1].endswith("made.py:1")
