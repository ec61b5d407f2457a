"""Networks, and features taken from them."""
