"""What a plan moves, holds, and would take."""
