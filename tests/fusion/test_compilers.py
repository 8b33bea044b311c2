"""Whatever ails a compiler, the result is right and one line says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from tests.fusion.build_cases import kernels_in, script, tanh_sum
from vgraph import compiler, native_part
from vgraph.fusion.cpu import build, compilers

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
pytestmark = pytest.mark.usefixtures("fresh_build")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler but the one that a test names."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("alone")
def test_no_compiler(said: Any, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = said()
    assert "no C++ compiler found" in line and "vgraph[jit]" in line
    assert [record.levelname for record in caplog.records] == ["WARNING"], "a program shows it unless told not to"
    assert said() == []


WAYS_TO_FAIL = {
    "echo internal error >&2; exit 1": "internal error",
    "exit 3": "ended with 3 and no message",
    "exit 0": "kernel.so: No such file or directory",
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("body", WAYS_TO_FAIL)
def test_a_compiler_that_fails(
    body: str, monkeypatch: pytest.MonkeyPatch, said: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = script(tmp_path, "c++", body)
    monkeypatch.setenv("CXX", path)
    (line,) = said()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert line == f"a kernel could not be compiled ({path}: {WAYS_TO_FAIL[body]}): torch's operators run instead"
    assert said() == []


@pytest.mark.usefixtures("alone")
def test_a_compiler_that_cannot_start(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    path = Path(script(tmp_path, "c++", ""))
    path.write_text("#!/there/is/no/such/shell\n")
    monkeypatch.setenv("CXX", str(path))
    (line,) = said()
    assert "could not be compiled" in line and "No such file" in line


@pytest.mark.usefixtures("alone")
def test_a_compiler_that_hangs(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    path = script(tmp_path, "c++", "exec /bin/sleep 30")
    monkeypatch.setattr(compilers, "MOST_SECONDS", 0.2)
    monkeypatch.setenv("CXX", path)
    (line,) = said()
    assert "could not be compiled" in line and "gave no answer within 0.2 seconds" in line
    Path(path).write_text("it is not asked again")
    assert said() == []


@pytest.mark.usefixtures("alone")
def test_several_compilers_that_fail(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """Each is tried once and says why; later kernels are tried by the first one alone."""
    for name in ("c++", "g++", "clang++"):
        script(tmp_path / "path", name, f"echo {name} >> {tmp_path}/asked; echo {name} is broken >&2; exit 1")
    first, second = said()  # of the one's kernels, and of the other's: a forward and its backward
    assert all(f"{tmp_path}/path/{name}: {name} is broken" in first for name in ("c++", "g++", "clang++"))
    assert "c++ is broken): torch" in second
    before = (tmp_path / "asked").read_text().split()
    assert said() == []
    assert set((tmp_path / "asked").read_text().split()[len(before) :]) == {"c++"}


@needs_compiler
@pytest.mark.parametrize("body", [*WAYS_TO_FAIL, "exec /bin/sleep 30"])
def test_the_next_compiler(body: str, monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """Where the one that is asked for fails, another compiles, from then on; once the log says so, and why."""
    second = build.find_compiler()
    assert second is not None
    run = compilers.run
    path = script(tmp_path, "broken", f"echo >> {tmp_path}/asked; {body}")

    def impatient(command: list[str]) -> Any:
        if command[0] == path and "sleep" in body:
            subprocess.run(command, check=False, timeout=0.5)
        return run(command)

    monkeypatch.setattr(compilers, "run", impatient)
    monkeypatch.setenv("CXX", path)
    build.forget()
    (line,) = said()
    reason = WAYS_TO_FAIL.get(body, "gave no answer within")
    assert line.startswith(f"{path} cannot compile a kernel ({reason}")
    assert line.endswith(f"): {second[0]} does so instead") and kernels_in(tmp_path)
    asked = (tmp_path / "asked").read_text()
    assert said() == [] and build_one_more() and (tmp_path / "asked").read_text() == asked


@needs_compiler
def test_ctrl_c_is_no_failure(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """It reaches the compiler, too, on whichever thread that is waited for: the next call asks the same one."""
    first, run = build.find_compiler(), subprocess.run

    def interrupted(command: list[str], **options: Any) -> Any:
        is_asked_to_build = "-o" in command
        return subprocess.CompletedProcess(command, -signal.SIGINT) if is_asked_to_build else run(command, **options)

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        said()
    monkeypatch.setattr(subprocess, "run", run)
    assert said() == [] and build.find_compiler() == first and kernels_in(tmp_path)


def test_what_all_functions_share_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ctrl-C came while it was compiled."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    native_part.begin_native.cache_clear()
    monkeypatch.setattr(native_part, "build_native", interrupted)
    with pytest.raises(KeyboardInterrupt):
        native_part.load_native()
    monkeypatch.undo()
    assert native_part.begin_native.cache_info().currsize == 0 and native_part.load_native() is not None


@needs_compiler
@pytest.mark.usefixtures("fresh_build")
@pytest.mark.parametrize("lost", ["forward", "backward"])
def test_where_a_pair_has_one_of_its_kernels_both_are_torchs(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward finds maxima by comparing what it computes again with what the forward has left."""

    def some(source: str, count: int) -> Any:
        is_backward = "out_dst[" in source
        return None if is_backward == (lost == "backward") else build.build_kernels(source, count)

    def largest(nodes: Any) -> dict[str, torch.Tensor]:
        return {"o": nodes.mailbox["s"].softmax(1).amax(1)}

    monkeypatch.setattr(compiler, "build_kernels", some)
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(20, (200,)), torch.randint(20, (200,))), num_nodes=20)
    h = torch.randn(20, 24, requires_grad=True)
    g.ndata["h"] = h
    g.update_all(lambda edges: {"s": (edges.src["h"] * edges.dst["h"]).sum(1, keepdim=True)}, largest)
    (found,) = torch.autograd.grad(g.ndata["o"].sum(), h)
    src, dst = g.edges()
    scores = (h[src] * h[dst]).sum(1)
    by_hand = sum(torch.softmax(scores[dst == v], 0).amax() for v in dst.unique())
    torch.testing.assert_close(found, torch.autograd.grad(by_hand, h)[0])


def build_one_more() -> Any:
    return build.build_kernels('#include "prelude.h"\nextern "C" void kernel0(const int64_t*) {}', 1)


@needs_compiler
def test_a_compiler_whose_work_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """As that of one for another machine: it succeeds, and the next one is taken."""
    made = 'for word; do case "$last" in -o) echo nothing > "$word";; esac; last="$word"; done'
    monkeypatch.setenv("CXX", script(tmp_path, "cross", made))
    build.forget()
    lines = said()
    assert "what it makes cannot be loaded" in lines[-1] and "does so instead" in lines[-1]


@needs_compiler
def test_one_compiler_under_two_names_is_tried_once(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    body = f'echo $0 >> {tmp_path}/asked; [ "$1" = --version ] && echo "$(basename $0) (Old) 4.2" && exit; exit 1'
    for name in ("c++", "g++"):
        script(tmp_path / "path", name, body)
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    build.forget()
    lines = said()
    assert len(lines) == 1 and "g++" not in lines[0]


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_compiler_without_short_numbers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path
) -> None:
    """As GCC before 12 is; it compiles all, also what has them."""
    compiler = build.find_compiler()
    assert compiler is not None
    names = " ".join(f"-D{name}=no_such_type" for name in ("_Float16", "__bf16", "__fp16"))
    monkeypatch.setenv("CXX", f"{' '.join(compiler)} {names}")
    build.forget()
    assert said() == []
    g = vgraph.graph(([0, 1, 1], [1, 2, 2]))
    g.ndata["h"] = torch.tensor([[1.5], [2.0], [0.25]]).to(dtype)
    g.update_all(lambda e: {"m": e.src["h"] * 2}, fn.sum("m", "o"))
    assert g.ndata["o"].tolist() == [[0.0], [3.0], [8.0]] and len(kernels_in(tmp_path)) == 3


@needs_compiler
def test_cxx_that_is_not_there(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    monkeypatch.setenv("CXX", "g++-999 -v")
    (line,) = said()
    assert "CXX names g++-999" in line


@needs_compiler
def test_cxx_with_arguments(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    compiler = build.find_compiler()
    assert compiler is not None
    through = script(tmp_path, "through", f"echo $1 > {tmp_path}/seen; exec {' '.join(compiler)} $@")
    monkeypatch.setenv("CXX", f"{through} -DANY_WORD=1")
    build.forget()
    assert said() == []
    assert (tmp_path / "seen").read_text() == "-DANY_WORD=1\n" and kernels_in(tmp_path)


@needs_compiler
def test_a_flag_that_the_compiler_does_not_know(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    compiler = build.find_compiler()
    assert compiler is not None
    refuse = 'for flag; do case "$flag" in -march=*|-ffp*) echo "error: $flag?" >&2; exit 1;; esac; done'
    monkeypatch.setenv("CXX", script(tmp_path, "old", f"{refuse}\nexec {' '.join(compiler)} $@"))
    build.forget()
    (line,) = said()
    assert line.endswith("does not know -march=native -ffp-contract=off: kernels are built without")
    assert kernels_in(tmp_path)


def test_the_compiler_of_the_wheel(monkeypatch: pytest.MonkeyPatch, said: Any, tmp_path: Path) -> None:
    """Found where there is no other; it builds its own libraries first, which takes seconds."""
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (line,) = said()
    assert line == "no system compiler found: kernels are compiled by the one of the ziglang wheel"
    assert build.find_compiler()[1] == "cc" and kernels_in(tmp_path)


@needs_compiler
def test_what_all_functions_share_is_optimized_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops of a function have their vectors written out; what is built once a machine leaves more to find."""
    levels: dict[str, set[str]] = {"functions": set(), "shared": set()}

    def refuse(_: Any, text: Path, built: Path, flags: tuple[str, ...]) -> Any:
        source = text.read_text()
        levels["functions" if "body0" in source else "shared"].update(flags[:1] if source else ())
        return subprocess.CompletedProcess([], 1, "", f"{built.name} is not wanted")

    monkeypatch.setattr(compilers, "run_on", refuse)
    monkeypatch.setenv("VGRAPH_NATIVE", "1")
    assert tanh_sum(), "torch's operators run where nothing can be compiled"
    assert native_part.build_native() is None
    assert levels == {"functions": {"-O2"}, "shared": {"-O3"}}
