"""The vertex functions and messages of examples/ as one writes them without vgraph."""
