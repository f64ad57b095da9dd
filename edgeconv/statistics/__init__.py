"""What is left to chance: intervals of accuracies, and of their differences."""
