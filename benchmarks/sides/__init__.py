"""What is timed, once for each library: a worker process a side, all on the same numbers."""
