"""``python -m vgraph.compat.pyg script.py [arguments]``: runs a program of PyG's with its layers on vgraph's kernels.

Takes: a script and its arguments. Gives: what it does. Runs once per process.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from vgraph.compat.pyg import accelerated


def main() -> int:
    """Runs the script as ``python script.py`` would."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m vgraph.compat.pyg script.py [arguments]", file=sys.stderr)
        return 0 if arguments else 2
    if not Path(arguments[0]).is_file():
        print(f"vgraph.compat.pyg: there is no script {arguments[0]}", file=sys.stderr)
        return 2
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    with accelerated():
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
