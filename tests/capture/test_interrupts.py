"""Ctrl-C and threads while functions are captured: modes, numbers and graphs as they were, and the next call right."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import vgraph
import vgraph.function as fn
from tests.campaign import fault_calls
from vgraph import forks
from vgraph.capture import capture
from vgraph.capture.guards import code_watch
from vgraph.capture.guards import compile_guards as check
from vgraph.memory.arena import ArenaPool


def total(model: fault_calls.Scaled) -> torch.Tensor:
    g = vgraph.graph(([0, 1, 2, 0], [1, 2, 3, 3]))
    g.ndata["h"] = torch.ones(4, 4)
    g.update_all(model.message, fn.sum("m", "o"))
    return g.ndata["o"].sum()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops what is raised in __del__
def test_at_random_lines() -> None:
    assert fault_calls.interrupted_calls(seed=0, count=8) == []


def held_locks() -> list[forks.Lock]:
    """Those that another thread cannot have, of all that vgraph holds when a process is forked."""
    held: list[forks.Lock] = []

    def look() -> None:
        for lock in {*forks._locks[0], *forks._locks[1]}:
            held.append(lock) if not cast(Any, lock).acquire(blocking=False) else lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return held


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_lock_stays_held_at_any_line_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGRAPH_CAPTURE", raising=False)  # a call that is recorded again has a thousand times the lines
    model, num_lines = fault_calls.Scaled(), 0
    total(model).backward()
    pool = ArenaPool()

    def call() -> None:
        total(model).backward()
        pool.lease(100, torch.device("cpu")).release()
        pool.empty((1 << 17,), torch.float32)

    for line in count(1):
        with contextlib.suppress(KeyboardInterrupt), fault_calls.Interrupt(line) as interrupt:
            call()
        assert held_locks() == [], line
        num_lines = line
        if interrupt.left > 0:
            break
    assert num_lines > 100
    call()


def test_threads_that_call_and_capture_at_once() -> None:
    before = torch.get_num_threads()
    try:
        assert fault_calls.threads(seed=0, count=10) == []
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("mode", [TorchDispatchMode, TorchFunctionMode])
@pytest.mark.parametrize("step", ["__enter__", "__exit__"])
def test_as_a_recording_begins_and_ends(mode: Any, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one mode is entered and the other is not yet; the one is left and the other is not."""
    model, real, left = fault_calls.Scaled(), getattr(mode, step), [1]
    wanted = total(model)
    capture.forget()

    def interrupted(self: Any, *given: Any) -> Any:
        is_ours = bool(left) and type(self).__module__.startswith("vgraph")
        if is_ours:
            left.pop()
        found = None if is_ours and step == "__enter__" else real(self, *given)
        if is_ours:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(mode, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        total(model)
    monkeypatch.undo()
    assert not left and gc.isenabled() and torch.is_grad_enabled()
    assert torch.ones(2).tolist() == [1, 1]  # refused within a recording
    assert torch.equal(total(model), wanted)


@pytest.mark.parametrize("module", [torch.utils._python_dispatch, torch.overrides])
@pytest.mark.parametrize("step", ["_push_mode", "_pop_mode"])
def test_within_torchs_own_lines_as_a_recording_begins_and_ends(
    module: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode is on the stack and torch has not returned, or torch has been asked to take it off and has not."""
    model, real, left = fault_calls.Scaled(), getattr(module, step), [1]
    wanted = total(model)
    capture.forget()

    def interrupted(*given: Any) -> Any:
        if not left:
            return real(*given)
        left.pop()
        if step == "_push_mode":
            real(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        total(model)
    monkeypatch.undo()
    assert not left and torch.ones(2).tolist() == [1, 1]  # refused within a recording
    assert not torch.overrides._get_current_function_mode_stack()
    assert torch.equal(total(model), wanted)


def modes_now() -> list[Any]:
    """All that a recording changes of its thread, and of torch."""
    backends = torch.backends
    return [
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), torch.autocast_increment_nesting(),
        torch.autocast_decrement_nesting(), backends.mkldnn.enabled, backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(), gc.isenabled(), sys.getprofile(),
        len(torch.overrides._get_current_function_mode_stack()),
        len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
    ]  # fmt: skip


_GENERATED = contextlib._GeneratorContextManager
STEPS: dict[str, tuple[Any, str]] = {
    "grad mode is made": (torch.set_grad_enabled, "__init__"),
    "grad mode is left": (torch.set_grad_enabled, "__exit__"),
    "autocast is entered": (torch.autocast, "__enter__"),
    "autocast is left": (torch.autocast, "__exit__"),
    "inference mode is entered": (torch.inference_mode, "__enter__"),
    "saved tensors pass hooks": (torch.autograd.graph.saved_tensors_hooks, "__enter__"),
    "a dispatch mode is entered": (TorchDispatchMode, "__enter__"),
    "a function mode is entered": (TorchFunctionMode, "__enter__"),
    "a generator is entered": (_GENERATED, "__enter__"),
    "a generator is left": (_GENERATED, "__exit__"),
    "the watcher is set": (code_watch, "replace_profiler"),
}


def raising(real: Callable[..., Any], number: int, *, after: bool) -> Callable[..., Any]:
    """The same function, at whose call of this number, from 0 on, Ctrl-C comes before or after it has run."""
    numbers = count()

    def interrupted(*given: Any, **named: Any) -> Any:
        is_now = next(numbers) == number
        if is_now and not after:
            raise KeyboardInterrupt
        found = real(*given, **named)
        if is_now:
            raise KeyboardInterrupt
        return found

    return interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", STEPS)
def test_as_a_mode_is_set_and_nobody_has_been_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes before or after each of the first calls that set one; the error, and its frames, are kept."""
    model, (owner, step) = fault_calls.Scaled(), STEPS[name]
    real, wanted, before, raised = getattr(owner, step), total(model), modes_now(), list[KeyboardInterrupt]()
    for number in range(8):
        capture.forget()
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, raising(real, number // 2, after=number % 2 == 0))
            try:
                total(model)
            except KeyboardInterrupt as error:
                raised.append(error)
        assert modes_now() == before, number
    assert len(raised) >= 2
    with torch.no_grad():
        raised.clear()
        gc.collect()
        assert not torch.is_grad_enabled()
    assert torch.equal(total(model), wanted)


@pytest.mark.guards
@pytest.mark.parametrize("number", [0, 1, 2])
def test_as_tensors_stand_for_numbers(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as a number is put back, or right after a tensor took its place."""
    model, real, count = fault_calls.Scaled(), check._holder, [0]
    for step in range(4):
        model.factor, model.parts[1], model.table["a"] = 0.5 + step, 3.0 + step, 2.0 + step
        total(model)
    model.factor, model.parts[1], model.table["a"] = 0.25, 0.125, 0.75
    before = model.numbers()

    def holder(*given: Any) -> Any:
        found = real(*given)
        if found is None:
            return None
        value, put, back = found

        def interrupted(new: Any) -> None:
            put(new)
            count[0] += 1
            if count[0] == number + 1:
                raise KeyboardInterrupt

        return value, interrupted, back

    monkeypatch.setattr(check, "_holder", holder)
    capture.forget()
    for step in range(4):  # until they are known to change
        try:
            model.factor, model.parts[1], model.table["a"] = 0.25 + step, 0.125 + step, 0.75 + step
            before = model.numbers()
            total(model)
        except KeyboardInterrupt:
            break
    assert count[0] == number + 1
    assert model.numbers() == before
    monkeypatch.undo()
    found = total(model)
    capture.forget()
    torch.testing.assert_close(found, total(model))


def test_numbers_are_put_back_though_that_is_interrupted() -> None:
    put, left = list[int](), [1]

    def interrupted() -> None:
        if left:
            left.pop()
            raise KeyboardInterrupt
        put.append(2)

    with pytest.raises(KeyboardInterrupt):
        check._restore([lambda: put.append(1), interrupted, lambda: put.append(3)])
    assert put == [1, 1, 2, 3]
