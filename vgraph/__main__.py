"""``python -m vgraph``: the command line, where no folder of scripts is on the path.

Takes: arguments. Gives: an exit status. Runs once.
"""

import sys

from vgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
