"""The doctor: what is wrong with a box, by checks that only look at readings."""
