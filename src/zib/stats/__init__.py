"""Statistics that policies keep, and what can be read from them."""
