"""``import dgl`` in a process that a program's process has started anew: vgraph takes DGL's place there, too.

Takes: nothing. Gives: the modules that ``vgraph.compat.install`` puts in place. Runs once per such process.
Processes that are spawned get their parent's ``sys.path``, in which ``install`` has put this folder, and nothing else.
"""

import sys

from vgraph.compat import install

sys.modules.pop("dgl", None)  # this file, for which Python now takes what ``install`` puts there
install()
