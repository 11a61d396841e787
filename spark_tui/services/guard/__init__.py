"""The guard of services."""
