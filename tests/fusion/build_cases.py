"""What tests of compilers and of their cache share."""

from __future__ import annotations

import stat
from pathlib import Path

import torch

import vgraph
import vgraph.function as fn


def tanh_sum() -> bool:
    g = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3]))
    h = torch.randn(4, 5, requires_grad=True)
    g.ndata["h"] = h
    g.update_all(lambda e: {"m": torch.tanh(e.src["h"])}, fn.sum("m", "o"))
    t = torch.tanh(h)
    expected = torch.stack([torch.zeros(5), t[0], t[1], t[2] + t[0]])
    (grad,) = torch.autograd.grad(g.ndata["o"].sum(), h)
    (wanted,) = torch.autograd.grad(expected.sum(), h)
    return torch.allclose(g.ndata["o"], expected, atol=1e-6) and torch.allclose(grad, wanted, atol=1e-6)


def script(folder: Path, name: str, body: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def kernels_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))
