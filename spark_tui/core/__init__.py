"""Use cases and state. Reaches the world through ports; only `context` names adapters."""
