"""What each feature shows, once for both front ends: sections, rows, tables, sentences for states and errors."""
