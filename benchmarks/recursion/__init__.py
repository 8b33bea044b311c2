"""Recursive workloads, each with its sides: vgraph, torch's own ways, DGL and DyNet, on the same numbers."""
