"""Netlists of many compiles, checked as files from elsewhere are, and faults planted in them: `python -m
tests.emitted`."""
