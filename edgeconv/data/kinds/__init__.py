"""The kinds of data, one module each; see edgeconv.data."""
