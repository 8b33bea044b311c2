"""Kernels that are kept are found by their specs, and by nothing less than all of these."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fusion.build_cases import tanh_sum
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build, known_specs
from vgraph.fusion.cpu.known_specs import describe
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
X = Value(0, SOURCE, torch.float32, (Rows(SOURCE), 4), "user.py:1")
M = Value(1, EDGE, torch.float32, (Rows(EDGE), 4))
S = Value(2, VERTEX, torch.float32, (Rows(VERTEX), 4))
SCALED = Op(torch.ops.aten.mul.Tensor, (M, 2.0), {}, (Value(3, EDGE, torch.float32, (Rows(EDGE), 4)),))
SUM = Op(SegmentReduce("dst", "sum"), SCALED.results, {}, (S,))
SPEC = KernelSpec((SCALED, SUM), (X,), (S,), "dst", {1: Place(X, "src", 0, (1,), (4,))}, {7: "$slot"})


def run_without(name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls of a function of the compiler while a known function is captured anew."""
    calls, real = list[int](), getattr(compiler, name)
    monkeypatch.setattr(compiler, name, lambda *args: calls.append(1) or real(*args))
    capture.forget()
    assert tanh_sum()
    return calls


@needs_compiler
@pytest.mark.usefixtures("fresh_build")
def test_a_source_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_without("emit_kernels", monkeypatch)
    assert not run_without("emit_kernels", monkeypatch)


@needs_compiler
@pytest.mark.usefixtures("fresh_build")
@pytest.mark.parametrize("kind", ["*.so", "*.source"])
@pytest.mark.parametrize("harm", ["removed", "damaged"])
def test_what_is_missing_is_made_again(harm: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert tanh_sum()
    found = list(tmp_path.rglob(kind))
    assert found
    for file in found:
        content = file.read_bytes()
        file.unlink()  # a library is loaded: writing into it would change this process
        if harm == "damaged":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert run_without("emit_kernels", monkeypatch)
    assert not run_without("emit_kernels", monkeypatch)


@needs_compiler
@pytest.mark.usefixtures("fresh_build")
def test_other_code_that_prints_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tanh_sum()
    monkeypatch.setattr(known_specs, "_of_printing", lambda: "another version")
    assert run_without("emit_kernels", monkeypatch)


def test_all_that_printing_rests_on_is_told() -> None:
    """What printing code imports decides what it prints, too."""
    told = known_specs._PRINTING
    texts = (file.read_text() for name in told for file in Path(known_specs.PACKAGE, name).rglob("*.py"))
    assert {name for text in texts for name in re.findall(r"^ *from vgraph\.(\w+)\.", text, re.MULTILINE)} <= set(told)


@needs_compiler
@pytest.mark.usefixtures("fresh_build")
def test_who_asks_for_the_text_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tanh_sum()
    monkeypatch.setattr(compiler.config, "log_topics", lambda: frozenset({"kernels"}))
    assert run_without("emit_kernels", monkeypatch)


OTHERS: dict[type, tuple[Any, dict[str, Any]]] = {
    KernelSpec: (
        SPEC,
        {
            "ops": (SUM,),
            "loads": (),
            "stores": (),
            "own": "src",
            "places": {},
            "given": {7: "$in_degree"},
            "in_loop": True,
            "parts": (SPEC, SPEC),
        },
    ),
    Op: (
        SCALED,
        {
            "target": torch.ops.aten.mul.Scalar,
            "args": (M, 2),
            "kwargs": {"alpha": 1},
            "results": (M,),
            "returns_sequence": True,
            "is_rowwise": False,
        },
    ),
    Value: (X, {"id": 9, "space": SHARED, "dtype": torch.float64, "shape": (Rows(SOURCE), 5)}),
    Place: (
        SPEC.places[1],
        {"base": S, "end": "dst", "offset": 1, "strides": (2,), "shape": (5,)},
    ),
}


def spec_with(part: Any) -> KernelSpec:
    """The spec with another one of its parts."""
    if isinstance(part, KernelSpec):
        return part
    if isinstance(part, Op):
        return replace(SPEC, ops=(part, SUM))
    return replace(SPEC, loads=(part,)) if isinstance(part, Value) else replace(SPEC, places={1: part})


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, new) in OTHERS.items() for name in new])
def test_whatever_differs_is_told(kind: type, name: str) -> None:
    part, new = OTHERS[kind]
    assert describe([spec_with(replace(part, **{name: new[name]}))]) != describe([SPEC])


@pytest.mark.parametrize("kind", OTHERS)
def test_every_field_is_told_but_the_users_line(kind: type) -> None:
    assert {one.name for one in fields(kind)} - {"line"} == OTHERS[kind][1].keys()
    if kind in (Op, Value):
        part = replace(OTHERS[kind][0], line="elsewhere.py:7")
        assert describe([spec_with(part)]) == describe([SPEC])


@pytest.mark.parametrize("one, other", [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), ((1, 2), ((1,), 2))])
def test_arguments_that_are_alike_differ(one: object, other: object) -> None:
    texts = {describe([spec_with(replace(SCALED, args=(M, given)))]) for given in (one, other)}
    assert len(texts) == 2


def test_moves_differ_by_all_that_they_are() -> None:
    moves = [Gather("src"), Gather("dst"), Gather("src", "a"), SegmentReduce("src", "sum"), SegmentReduce("src", "max")]
    assert len({describe([spec_with(replace(SCALED, target=move))]) for move in moves}) == len(moves)


def test_what_has_no_text_is_not_kept() -> None:
    assert describe([spec_with(replace(SCALED, args=(M, torch.zeros(2))))]) is None
