"""The logs of domain."""
