"""Operators against their definitions."""
