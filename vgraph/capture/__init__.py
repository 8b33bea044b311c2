"""A user's function becomes Programs: recorded once, found again by guards or by what it does."""
