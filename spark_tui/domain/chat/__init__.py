"""The chat of domain."""
