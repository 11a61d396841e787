"""The bench of services."""
