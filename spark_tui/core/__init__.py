"""Use cases and state. Reaches the world through ports; only `real_ports`, `demo_ports` and `context` name adapters."""
