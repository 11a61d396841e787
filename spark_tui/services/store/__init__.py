"""The store of services."""
