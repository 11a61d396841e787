"""The host of services."""
