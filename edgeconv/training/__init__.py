"""Training, from the side of the parent: clusters of processes, and who is in them."""
