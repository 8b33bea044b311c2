"""A whole training step of a dense model: forward, backward and the optimizer's update."""
