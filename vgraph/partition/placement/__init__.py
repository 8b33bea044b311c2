"""Which operator runs on which device."""
