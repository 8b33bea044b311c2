"""Dense models divided over devices, and placed on them."""
