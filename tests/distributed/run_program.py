"""Runs a module as a program that ends at once when it is done: ``python -m tests.distributed.run_program MODULE ...``.

Threads of torch's process groups now and then abort an interpreter that takes itself down (README.md, Limits); what
tests ask is what a program says before.
"""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
