"""What one run of a function did, operator by operator, and two runs made one."""
