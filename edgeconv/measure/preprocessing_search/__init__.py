"""The preprocessing search, which the verb `doctor` makes."""
