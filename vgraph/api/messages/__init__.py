"""Message passing: update_all and its relatives, readouts, sums by type."""
