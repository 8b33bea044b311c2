"""Sparse matrices whose values have gradients, on the kernels of message passing; ``vgraph.sparse`` exports them."""
