"""What a notebook shows of graphs, plans and explanations."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

import vgraph
import vgraph.function as fn


def cells(html: str) -> list[list[str]]:
    rows = ElementTree.fromstring(html.replace("<br>", "; ")).iter("tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_a_graph_is_a_table_of_types_and_features() -> None:
    g = vgraph.batch([vgraph.graph(([0, 1], [2, 2])), vgraph.graph(([0], [1]))])
    g.ndata["h"], g.ndata["<b>"] = torch.ones(5, 4), torch.ones(5, dtype=torch.int64)
    html = g._repr_html_()
    assert cells(html)[1:] == [
        ["nodes", "_N", "5", "h [4] torch.float32; <b> [] torch.int64"],
        ["edges", "_N, _E, _N", "3", ""],
    ]
    assert "a batch of 2, on cpu" in html


def test_blocks_and_typed_graphs() -> None:
    g = vgraph.heterograph({("user", "buys", "item"): ([0, 1], [0, 0]), ("item", "near", "item"): ([0], [1])})
    assert [row[:3] for row in cells(g._repr_html_())[1:]] == [
        ["nodes", "item", "2"],
        ["nodes", "user", "2"],
        ["edges", "item, near, item", "1"],
        ["edges", "user, buys, item", "2"],
    ]
    block = vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), torch.tensor([2]))
    assert [row[0] for row in cells(block._repr_html_())] == ["", "senders", "receivers", "edges"]


def test_a_plan_is_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    class Model(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).square().mean()

    plan = vgraph.parallelize(Model(8, 8), (torch.randn(4, 8),), num_workers=2)
    plan.print()
    printed = capsys.readouterr().out.removesuffix("\n")
    assert ElementTree.fromstring(plan._repr_html_()).text == str(plan) == printed


def test_an_explanation_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As a picture where a notebook runs, else as text."""
    g = vgraph.graph(([0, 1], [2, 2]))
    g.ndata["h"] = torch.ones(3, 4)
    explanation = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s"))
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    explanation.show()
    assert capsys.readouterr().out == f"{explanation}\n"
    shown: list[object] = []
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=shown.append))
    explanation.show()
    assert shown == [explanation] and not capsys.readouterr().out
