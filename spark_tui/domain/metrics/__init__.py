"""The metrics of domain."""
