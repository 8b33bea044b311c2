"""What Dynamo sees of a user's function."""
