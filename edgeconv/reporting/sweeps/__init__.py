"""A sweep as text, as a page that sorts and filters, and as files."""
