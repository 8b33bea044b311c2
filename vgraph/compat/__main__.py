"""``python -m vgraph.compat script.py [arguments]``: runs a program as if vgraph were DGL.

Takes: a script and its arguments. Gives: what it does. Runs once per process.
"""

from __future__ import annotations

import sys

from vgraph.compat import install
from vgraph.compat.ranked import table
from vgraph.compat.script import check_script, run_script


def main() -> int:
    """Runs the script; with ``--table`` prints which names of DGL lead where."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--table"]:
        print(table(), end="")
        return 0
    status = check_script("vgraph.compat", arguments, "--table | ")
    if status is None:
        install()
        run_script(arguments)
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
