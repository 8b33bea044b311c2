"""What benchmarks/distributed.py runs in processes of their own."""
