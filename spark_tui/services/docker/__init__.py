"""The docker of services."""
