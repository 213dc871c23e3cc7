"""Arrangements: immutable batches, the spine that keeps them few, and the trace that operators read."""
