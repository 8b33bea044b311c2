"""Workloads and checks of gpu.py."""
