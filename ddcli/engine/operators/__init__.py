"""Operators: each turns the new updates of its inputs, over an interval of times, into the updates of its result."""
