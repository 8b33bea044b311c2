"""Some of a graph's edges, or pairs of vertices, drawn at random: what ``vgraph.sampling`` and ``Graph`` share."""
