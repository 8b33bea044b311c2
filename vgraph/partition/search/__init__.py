"""The division of a training step that moves the fewest bytes."""
