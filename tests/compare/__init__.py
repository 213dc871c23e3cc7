"""Tests of data-diff: against its definition in plain Python, and as a command."""
