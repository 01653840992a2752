"""Files that are attacked: what readers make of damaged and of malicious ones. `make fuzz` runs them for long."""
