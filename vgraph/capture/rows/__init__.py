"""Rows of several kinds while a function runs: how they meet, are reduced, and become edges."""
