"""Calls of the campaign of faults, in processes of their own: no memory, no compiler, no cache, interrupts, threads.

Every function here gives what went wrong, or numbers to compare.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import random
import resource
import shutil
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

import torch

import vgraph
import vgraph.function as fn
from vgraph import compiler
from vgraph.capture import capture

_SOURCES = str(Path(vgraph.__file__).parent)


# ---------------------------------------------------------------- calls
def tanh_sum() -> list[float]:
    """A message function of its own, with its gradient: two kernels."""
    g, x = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3])), torch.arange(20.0).view(4, 5).requires_grad_()
    g.ndata["h"] = x
    g.update_all(lambda e: {"m": torch.tanh(e.src["h"]) * 0.125 + e.dst["h"]}, fn.sum("m", "o"))
    out = g.ndata["o"].sum()
    out.backward()
    assert x.grad is not None
    return [out.item(), *x.grad.flatten().tolist()]


def compiled_calls() -> tuple[list[float], bool]:
    """The numbers, and whether all kernels were compiled or found."""
    loaded, real = list[bool](), compiler.build_kernels

    def build_kernels(source: str, count: int) -> Any:
        found = real(source, count)
        loaded.append(found is not None)
        return found

    compiler.build_kernels = build_kernels
    return tanh_sum(), bool(loaded) and all(loaded)


def calls_without_compiler() -> tuple[list[float], bool]:
    """As on a machine that has none, and not the wheel either."""
    sys.modules["ziglang"] = None  # type: ignore[assignment]
    return compiled_calls()


def calls_while_the_cache_goes(cache: Path) -> tuple[list[float], bool]:
    """Somebody empties the cache between two functions."""
    tanh_sum()
    shutil.rmtree(cache)
    capture.forget()
    found = compiled_calls()
    capture.forget()
    return found


def calls_out_of_memory() -> list[str]:
    """What goes wrong where memory ends in the midst of a call; the limit is what the process takes and a little."""
    wanted, g = tanh_sum(), vgraph.graph((torch.arange(1, 200_000), torch.zeros(199_999, dtype=torch.int64)))
    cell, x = vgraph.nn.ChildSumTreeLSTM(5, 64), torch.rand(200_000, 5)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (48 << 20), resource.RLIM_INFINITY))
    wrong = list[str]()
    try:
        cell(g, x=x)
        wrong.append("a call went through for which there was no memory")
    except (MemoryError, RuntimeError) as error:
        if not any(word in str(error) for word in ("memory", "alloc")) and not isinstance(error, MemoryError):
            wrong.append(f"the error says nothing of memory: {error!r}")
    if tanh_sum() != wanted:
        wrong.append("the next call is another one's")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    if cell(g, x=x)["h"].shape != (200_000, 64):
        wrong.append("the call does not come back to life")
    return wrong


# ---------------------------------------------------------------- interrupts
class Interrupt:
    """Raises KeyboardInterrupt at the n-th line of vgraph that runs, as Ctrl-C may."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __enter__(self) -> Interrupt:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: Any, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_SOURCES) else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self.left -= event == "line"
        if self.left <= 0 and event == "line" and not _leaves_a_with(frame.f_code, frame.f_lasti):
            sys.settrace(None)
            raise KeyboardInterrupt
        return self._line


def _leaves_a_with(code: types.CodeType, offset: int) -> bool:
    """Whether ``__exit__(None, None, None)`` comes next: a line to who traces, and no place for Ctrl-C."""
    ahead = [op for op in dis.get_instructions(code) if op.offset >= offset and op.opname not in _BETWEEN][:2]
    return all(op.opname == "DUP_TOP" or (op.opname == "LOAD_CONST" and op.argval is None) for op in ahead)


_BETWEEN = ("NOP", "POP_BLOCK", "SWAP", "ROT_TWO")


class Scaled(torch.nn.Module):
    """Messages that read numbers of their own, which change, in an attribute, a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.factor, self.parts, self.table = torch.nn.Linear(4, 4), 0.5, [1.0, 3.0], {"a": 2.0}

    def message(self, edges: Any) -> Any:
        rows = torch.tanh(self.W(edges.src["h"])) * self.factor
        return {"m": rows + edges.dst["h"] * self.table["a"] + self.parts[1]}

    def numbers(self) -> list[Any]:
        return [self.factor, *self.parts, *self.table.values()]


def interrupted_calls(seed: int, count: int) -> list[str]:
    """What is not as it was after KeyboardInterrupt at random lines of captures and calls; the next call is checked."""
    rng, wrong = random.Random(seed), list[str]()
    model, cell = Scaled(), vgraph.nn.ChildSumTreeLSTM(4, 3)
    g, x = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3])), torch.rand(4, 4)
    g.ndata["h"] = x
    parameters = [*model.parameters(), *cell.parameters()]

    def call() -> list[torch.Tensor]:
        inner = g.local_var()
        inner.update_all(model.message, fn.sum("m", "o"))
        out = [inner.ndata["o"], cell(g, x=x)["h"]]
        return [*out, *torch.autograd.grad([t.sum() for t in out], parameters)]

    lines = 300_000  # of a capture of all of it
    for number in range(count):
        if rng.random() < 0.5:
            capture.forget()
        for _ in range(rng.choice((0, 0, 3))):  # numbers that change often become inputs, with tensors in their place
            model.factor, model.parts[1], model.table["a"] = rng.random(), rng.random(), rng.random()
            call()
        before = (model.numbers(), list(g.ndata), torch.is_grad_enabled(), gc.isenabled(), sys.getprofile())
        line = int(lines ** rng.uniform(0.2, 1))
        with contextlib.suppress(KeyboardInterrupt), Interrupt(line):
            call()
        after = (model.numbers(), list(g.ndata), torch.is_grad_enabled(), gc.isenabled(), sys.getprofile())
        found = call()
        capture.forget()
        is_right = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, call(), strict=True))
        if before != after or not is_right:
            wrong.append(f"interrupt {number} of seed {seed}, line {line}: {before} became {after}, right: {is_right}")
    return wrong


# ---------------------------------------------------------------- threads
def threads(seed: int, count: int) -> list[str]:
    """What differs where threads call the same and different functions, capture at once and change their own graphs."""
    rng = random.Random(seed)
    model, cell = Scaled(), vgraph.nn.ChildSumTreeLSTM(4, 3)
    shared, constants = _random_dag(0), [lambda e, c=c: {"m": e.src["h"] * c} for c in (1.0, 2.0, 3.0)]

    def job(kind: int, number: int) -> torch.Tensor:
        g = shared.local_var() if number % 2 else _random_dag(number)
        x = torch.rand(g.num_nodes(), 4, generator=torch.Generator().manual_seed(number)).requires_grad_()
        g.ndata["h"] = x
        if kind == 0:
            y = cell(g, x=x)["h"]
        else:
            message = model.message if kind == 1 else constants[number % 3]
            g.update_all(message, fn.sum("m", "o") if kind < 3 else fn.max("m", "o"))
            y = g.ndata.pop("o")
        return torch.cat([y.flatten(), torch.autograd.grad(y.sum(), x)[0].flatten()])

    jobs = [(rng.randrange(4), rng.randrange(10)) for _ in range(count)]
    wanted = {one: job(*one) for one in jobs}
    wrong = list[str]()

    def work(thread: int) -> None:
        own = random.Random(f"{seed} {thread}")
        for kind, number in own.sample(jobs, len(jobs)):
            if own.random() < 0.1:
                capture.forget()
            torch.set_num_threads(own.choice((1, 2)))
            try:
                if not torch.allclose(job(kind, number), wanted[kind, number], atol=1e-5):
                    wrong.append(f"thread {thread} of seed {seed}: job {kind}, {number} differs")
            except BaseException:
                wrong.append(f"thread {thread} of seed {seed}: {traceback.format_exc()}")

    capture.forget()
    together = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    return wrong


def _random_dag(seed: int) -> vgraph.Graph:
    rng = random.Random(seed)
    pairs = [(rng.randrange(v), v) for v in range(1, rng.randrange(3, 9)) for _ in range(2)]
    return vgraph.graph(([u for u, _ in pairs], [v for _, v in pairs]))


class Faulty(list[vgraph.Graph]):
    """Graphs of which one cannot be had the first time."""

    fails = True

    def __getitem__(self, index: Any) -> Any:
        if index == 5 and self.fails:
            raise OSError("the disk is gone")
        return super().__getitem__(index)


def failing_loaders() -> list[str]:
    """What goes wrong where the thread or the process that prepares batches raises."""
    graphs, wrong = Faulty(_random_dag(n) for n in range(9)), list[str]()
    loaders = {
        "GraphLoader": vgraph.GraphLoader(graphs, 2),
        "DataLoader": torch.utils.data.DataLoader(graphs, 2, collate_fn=vgraph.batch, num_workers=1),
    }
    for name, loader in loaders.items():
        graphs.fails = True
        try:
            wrong.append(f"{name} told nothing of {len(list(loader))} batches")
        except OSError as error:
            if "the disk is gone" not in str(error):
                wrong.append(f"{name} said {error}")
        graphs.fails = False
        if sum(g.num_nodes() for g in loader) != sum(g.num_nodes() for g in graphs):
            wrong.append(f"{name} is of no use after an error")
    return wrong
