"""Intervals and tests of accuracies, times and their differences."""
