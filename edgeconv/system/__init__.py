"""Child processes (`system/processes/`), and files that are kept (`system/store/`)."""
