"""Use cases and state. Reaches the world through ports; only `wiring` names adapters."""
