"""Kernels on a processor of ARM's: run by an emulator, equal to those of this machine and to torch's operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.cross.cases import CASES, EXACT
from tests.cross.remote import Machine, collecting, emulator, wheel
from tests.fusion.fuzz import compile_fast
from vgraph.capture import capture
from vgraph.fusion.cpu import build

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(wheel() is None, reason="the ziglang wheel, which compiles for other processors, is missing"),
    pytest.mark.skipif(emulator() is None, reason="qemu-aarch64 (Debian's package qemu-user-static) is missing"),
]
# Of what processors may round differently: a sum's products, and what is computed from that.
CLOSE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
REFERENCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}


def outcomes() -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = {}
    for name, run in CASES.items():
        torch.manual_seed(0)
        capture.forget()
        found[name] = run()
    return found


def assert_close(name: str, found: list[Tensor], wanted: list[Tensor], bound: dict[torch.dtype, float]) -> None:
    for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
        allowed = bound.get(one.dtype, 0.0)
        scale = max(1.0, float(two.abs().max())) if two.numel() else 1.0
        torch.testing.assert_close(
            one, two, rtol=0, atol=allowed * scale, equal_nan=True,
            msg=lambda text, number=number: f"{name}, tensor {number}: {text}",
        )  # fmt: skip


def test_every_form_of_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setenv("VGRAPH_PRODUCTS", "1")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")  # vectors as long as Neon's
    sources: dict[str, int] = {}
    with compile_fast(), collecting(sources):
        here = outcomes()
    machine = Machine(sources, tmp_path)
    try:
        with machine.building():
            there = outcomes()
    finally:
        machine.close()
    assert machine.calls > 100
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    reference = outcomes()
    for name in CASES:
        assert_close(f"{name}, against this machine", there[name], here[name], CLOSE)
        assert_close(f"{name}, against torch", there[name], reference[name], REFERENCE)
    assert all(torch.equal(*pair) for name in EXACT for pair in zip(there[name], here[name], strict=True))
