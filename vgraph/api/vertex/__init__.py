"""Vertex functions: what they see, what calls give them, and how they are run."""
