"""Functions that no guard can watch: their Python runs at every call, their traces are looked up."""
