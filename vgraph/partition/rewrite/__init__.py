"""One Program a worker, with explicit fetches."""
