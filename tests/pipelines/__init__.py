"""The pipelines of pipelines/ against other people's graph algorithms, at every time."""
