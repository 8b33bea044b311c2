"""The hand-written part of the kernels.

Takes: contiguous rows and index tensors. Gives: rows. `reference` is the law that others agree with.
"""
