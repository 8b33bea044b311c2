"""Graph data and what changes it: types, topologies, frames, batches, subgraphs."""
