"""Formats: what the rows of an input's files mean. Each turns rows into updates, by one contract (see `base`)."""
