"""Sizes: any shape places and agrees with torch, or exceeds DRAM by the message's own count."""
