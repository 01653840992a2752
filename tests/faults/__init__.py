"""Faults planted in compiles, to see whether `Session.find_error` finds op and stage: `python -m tests.faults`."""
