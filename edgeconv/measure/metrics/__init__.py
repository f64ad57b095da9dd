"""What accuracy is: metrics over labels, and agreement of outputs."""
