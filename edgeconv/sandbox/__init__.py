"""What a child process may do: which files it may touch, and by which profile it runs."""

from edgeconv.sandbox.access import Access, Profile

__all__ = ["Access", "Profile"]
