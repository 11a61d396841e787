"""The engine_api of services."""
