"""Many models at once, many files of one model, and clusters of Ray."""
