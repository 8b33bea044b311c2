"""Programs and checks import ``dgl`` or PyG: tests run them in processes of their own, nothing else collects them."""

collect_ignore_glob = ["checks*.py", "pyg_ranks.py", "samples.py", "signatures.py", "programs/*.py"]
