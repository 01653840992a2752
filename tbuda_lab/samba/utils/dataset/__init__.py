"""Data sets of the tutorials."""
