"""Programs and checks import ``dgl``: tests run them in processes of their own, and nothing else collects them."""

collect_ignore_glob = ["checks*.py", "samples.py", "signatures.py", "programs/*.py"]
