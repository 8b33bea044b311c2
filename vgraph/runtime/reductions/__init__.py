"""Reductions over any dims, and sums over rows."""
