"""Forked programs live as a new Python's would: arguments, folder, environment, warnings, exit status, output."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests import apart, forked_python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent("""
        import atexit, os, pickle, sys, warnings
        import torch, beside

        class Own: ...

        atexit.register(print, "at exit")
        print(__name__, sys.argv[1:], os.getcwd() == beside.FOLDER, os.environ.get("WORD"), torch.get_num_threads())
        assert type(pickle.loads(pickle.dumps(Own()))) is Own
        if "warn" in sys.argv:
            warnings.warn("careful")
        if "wait" in sys.argv and os.environ["RANK"] == "0":
            import time; time.sleep(600)
        if "exit" in sys.argv or "wait" in sys.argv:
            sys.exit(3)
        """),
        encoding="utf-8",
    )
    (tmp_path / "beside.py").write_text(f"FOLDER = {str(tmp_path)!r}", encoding="utf-8")
    return path


def test_it_has_what_it_is_given(program: Path, tmp_path: Path) -> None:
    status, said = apart.run([str(program), "a"], {"WORD": "w", "OMP_NUM_THREADS": "1"}, tmp_path)
    assert (status, said) == (0, "__main__ ['a'] True w 1\nat exit\n")


def test_the_exit_status_is_its_own(program: Path, tmp_path: Path) -> None:
    status, said = apart.run([str(program), "exit"], {}, tmp_path)
    assert status == 3
    assert said.endswith("at exit\n")


@pytest.mark.parametrize("strict", [False, True])
def test_a_warning_is_an_error_if_it_is_to_be(strict: bool, program: Path, tmp_path: Path) -> None:
    status, said = apart.run([str(program), "warn"], {}, tmp_path, strict=strict)
    assert status == strict
    assert ("UserWarning: careful" in said, "Traceback" in said) == (True, strict)


def test_one_that_fails_ends_the_others(program: Path) -> None:
    codes, said = apart.run_together([str(program), "wait"], [{"RANK": rank} for rank in "01"])
    assert codes[1] == 3
    assert codes[0] < 0
    assert "__main__ ['wait']" in said


def test_one_that_does_not_end_is_told(program: Path, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="has not ended after 2 seconds"):
        apart.run([str(program), "wait"], {"RANK": "0"}, tmp_path, seconds=2)


STARTS = """
import signal, subprocess, sys, time

def start(*program, **given):
    return subprocess.Popen([sys.executable, *program], stdout=subprocess.PIPE, text=True, **given)

if len(sys.argv) > 1:
    print(sys.argv[1:], "torch" in sys.modules and sys.modules["torch"].__name__, sys.stdin.read(), flush=True)
    time.sleep(600 if "wait" in sys.argv else 0)
    sys.exit(5)
child = start(__file__, "a b", stdin=subprocess.PIPE)
print(child.communicate("in")[0].strip(), child.returncode)
print(start("-c", "import sys; print('torch' in sys.modules)").communicate()[0].strip())
waiting = start("-u", __file__, "wait", stdin=subprocess.DEVNULL)
print(waiting.stdout.readline().strip())
waiting.send_signal(signal.SIGTERM)
print(waiting.wait(60))
waiting = start(__file__, "wait", stdin=subprocess.DEVNULL)
waiting.stdout.readline()
waiting.kill()
print(waiting.stdout.read() == "")  # the forked process has closed it: it is killed as its stand-in is
"""


def test_what_it_starts_itself_is_forked(tmp_path: Path) -> None:
    """Arguments, streams, exit status and signals are passed on; what no fork can do is done by Python itself."""
    path = tmp_path / "starts.py"
    path.write_text(STARTS, encoding="utf-8")
    status, said = apart.run([str(path)], {apart.PYTHON: forked_python.command()}, tmp_path, seconds=120)
    wanted = ["['a b'] torch in 5", "False", "['wait'] torch", "-15", "True"]
    assert ([line.strip() for line in said.splitlines()], status) == (wanted, 0)
