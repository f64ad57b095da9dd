"""Child processes: how they are started, watched, talked to and ended."""
