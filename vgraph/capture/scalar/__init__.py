"""Functions of scalars, as ops that a loop can compute."""
