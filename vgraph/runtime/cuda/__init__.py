"""What runs on a GPU: kernels, loops over frontiers, recorded calls."""
