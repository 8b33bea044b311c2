"""What runs on a CPU: kernels, matrix products, loops over frontiers."""
