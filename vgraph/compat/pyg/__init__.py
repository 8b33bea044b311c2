"""Programs written for PyG: its layers on vgraph's kernels, with nothing rewritten.

Takes: a model made of PyG's layers. Gives: the same model. ``python -m vgraph.compat.pyg script.py`` runs a program so;
docs/coming_from/pyg.md lists the layers. PyG is not needed to import this.
"""

from __future__ import annotations

from vgraph.compat.pyg.layers import accelerate, accelerated

__all__ = ["accelerate", "accelerated"]
