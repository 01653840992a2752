"""What is asked of a finished placement: memory, chips of a cluster, load of the NoC."""
