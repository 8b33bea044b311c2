"""Scripts run by ``python -m vgraph.compat`` and ``python -m vgraph.compat.pyg``.

Takes: a command line. Gives: what the script does. Runs once per process.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def check_script(module: str, arguments: Sequence[str], options: str = "") -> int | None:
    """The exit status where the command line names no script, and says so; else None."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m {module} {options}script.py [arguments]", file=sys.stderr)
        return 0 if arguments else 2
    if not Path(arguments[0]).is_file():
        print(f"{module}: there is no script {arguments[0]}", file=sys.stderr)
        return 2
    return None


def run_script(arguments: list[str]) -> None:
    """Runs the script as ``python script.py`` would."""
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
