"""The history of services."""
