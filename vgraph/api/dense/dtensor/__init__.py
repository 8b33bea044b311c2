"""Plans as DTensors: a user's own model whose parameters lie on a device mesh as a plan divides them."""
