"""Traced signatures: those of signatures.py, which Dynamo asks while it traces, and takes for constants.

It cannot trace ``inspect``. Nothing else imports this: to mark a function for Dynamo loads Dynamo.
"""

from __future__ import annotations

import torch

from vgraph.nn import signatures

manner = torch.compiler.assume_constant_result(signatures.manner)
has_then = torch.compiler.assume_constant_result(signatures.has_then)
