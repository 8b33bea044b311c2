"""``python -m vgraph.compat script.py [arguments]``: runs a program as if vgraph were DGL.

Takes: a script and its arguments. Gives: what it does. Runs once per process.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from vgraph.compat import install
from vgraph.compat.ranked import table


def main() -> int:
    """Runs the script; with ``--table`` prints which names of DGL lead where."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m vgraph.compat [--table | script.py [arguments]]", file=sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--table":
        print(table(), end="")
        return 0
    if not Path(arguments[0]).is_file():
        print(f"vgraph.compat: there is no script {arguments[0]}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
