"""Throughput of an epoch, waits at its buffers and forks, and their repair."""
