"""Where tasks are done when not in this process."""
