"""``python -m vgraph.compat.pyg script.py [arguments]``: runs a program of PyG's with its layers on vgraph's kernels.

Takes: a script and its arguments. Gives: what it does. Runs once per process.
"""

from __future__ import annotations

import sys

from vgraph.compat.pyg import accelerated
from vgraph.compat.script import check_script, run_script


def main() -> int:
    """Runs the script as ``python script.py`` would."""
    arguments = sys.argv[1:]
    status = check_script("vgraph.compat.pyg", arguments)
    if status is None:
        with accelerated():
            run_script(arguments)
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
