"""Whether an engine does what agents need: requests with known answers, and what came back."""
