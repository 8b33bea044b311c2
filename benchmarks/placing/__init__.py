"""What placement is compared with: other planners, and random op graphs to plan."""
