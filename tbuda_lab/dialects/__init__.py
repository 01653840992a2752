"""What front dialects share: the host program, replicas of a device, and the report of where each op runs."""
