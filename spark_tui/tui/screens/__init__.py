"""One screen per pane."""
