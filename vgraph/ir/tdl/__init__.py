"""The index notation: what every operator does to every dim of its operands."""
