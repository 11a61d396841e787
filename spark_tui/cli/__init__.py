"""The headless front end: stdout is data, stderr is narration."""
