"""Queues, their addresses in DRAM and host memory, and the distance to them."""
