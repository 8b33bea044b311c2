"""Scripts and modules run by ``python -m vgraph.compat`` and ``python -m vgraph.compat.pyg``.

Takes: a command line. Gives: what the program does. Runs once per process.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def check_script(module: str, arguments: Sequence[str], options: str = "") -> int | None:
    """The exit status where the command line names no program, and says so; else None."""
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["-m"]:
        print(f"usage: python -m {module} {options}script.py | -m package.module [arguments]", file=sys.stderr)
        return 0 if arguments and arguments[0] != "-m" else 2
    if arguments[0] != "-m" and not Path(arguments[0]).is_file():
        print(f"{module}: there is no script {arguments[0]}", file=sys.stderr)
        return 2
    return None


def run_script(arguments: list[str]) -> None:
    """Runs the program as ``python script.py`` or ``python -m package.module`` would."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
