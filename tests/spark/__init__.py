"""Tasks, and tasks on Spark."""
