"""What a captured function read, and the check that none of it has changed."""
