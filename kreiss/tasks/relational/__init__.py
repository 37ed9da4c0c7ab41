"""Tasks about relations between objects."""
