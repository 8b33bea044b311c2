"""Kernels as C++."""
