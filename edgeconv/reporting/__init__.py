"""Results as people read them: text for a terminal, and one HTML page."""
