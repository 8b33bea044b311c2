"""``python -m vgraph.compat script.py [arguments]``: runs a program as if vgraph were DGL.

Takes: a script or ``-m`` and a module, and its arguments. Gives: what it does. Runs once per process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vgraph.compat import install
from vgraph.compat.check import report
from vgraph.compat.ranked import table
from vgraph.compat.script import check_script, run_script


def main() -> int:
    """Runs the program; ``--check`` says what it lacks, ``--table`` which names of DGL lead where."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--table"]:
        print(table(), end="")
        return 0
    if arguments[:1] == ["--check"]:
        return _check(arguments[1:])
    status = check_script("vgraph.compat", arguments, "--table | --check PATH | ")
    if status is None:
        install()
        run_script(arguments)
    return status or 0


def _check(paths: list[str]) -> int:
    """The exit status: 1 where a name is absent, 2 where there is nothing to check."""
    missing = [path for path in paths if not Path(path).exists()]
    if missing or not paths:
        print(
            f"vgraph.compat: there is no {missing[0]}" if missing else "vgraph.compat: --check what?", file=sys.stderr
        )
        return 2
    return max([report(Path(path)) for path in paths])


if __name__ == "__main__":
    sys.exit(main())
