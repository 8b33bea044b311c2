"""Programs of several workers or devices: in one process, or in one each."""
