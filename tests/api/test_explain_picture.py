"""explain, as a picture: every phase, step and stored tensor is drawn, and what is written in it is escaped."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import vgraph
from vgraph.api.explain_picture import picture
from vgraph.api.explain_report import FunctionSteps
from vgraph.errors import FunctionError


class Sum(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        state = torch.tanh(v.pull("x") + v.gather()["s"].sum())
        v.scatter(s=state)
        v.push(s=state)


def test_the_picture_shows_kernels_lines_and_frontiers(tmp_path: Path) -> None:
    g = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    found = vgraph.explain(Sum(), g, x=torch.ones(5, 3, requires_grad=True))
    (function,) = found.functions
    assert function.frontiers == (3, 1, 1)
    found.save(tmp_path / "sum.svg")
    drawn = ElementTree.fromstring((tmp_path / "sum.svg").read_text(encoding="utf-8"))
    texts = ["".join(node.itertext()) for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["Sum: captured", "3 frontiers, 5 vertices, 3 in the widest; children first"]
    assert any("test_explain_picture.py" in text and "torch.tanh(v.pull" in text for text in texts)
    titles = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:3] == [f"frontier {n}: {w} vertices" for n, w in enumerate((3, 1, 1))]
    boxes = drawn.findall(".//{http://www.w3.org/2000/svg}rect")
    stored = [s for program in function.programs for s in program.stored]
    steps = [step for program in function.programs for step in program.steps]
    phases = [phase for program in function.programs for phase in program.phases]
    assert len(boxes) == 1 + len(function.frontiers) + len(phases) + len(steps) + len(stored)
    assert max(float(box.get("y", 0)) for box in boxes) < float(drawn.get("height", 0))


def test_the_picture_of_what_is_not_captured_and_of_odd_names() -> None:
    drawn = picture([FunctionSteps("<lambda> & co", reason="it looks at a < b")], "kernels are off")
    assert "&lt;lambda&gt; &amp; co: not captured, it looks at a &lt; b" in drawn
    assert "kernels are off" in drawn


def test_a_picture_is_svg(tmp_path: Path) -> None:
    found = vgraph.explain(Sum(), vgraph.graph(([0], [1])), x=torch.ones(2, 3))
    with pytest.raises(FunctionError, match=r"the file is called x\.png"):
        found.save(tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
