"""One outside system per file, each behind a Protocol of `ports`. Services never import one another."""
