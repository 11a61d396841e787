"""The hub of services."""
