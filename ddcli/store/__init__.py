"""Files: change logs in and out, the state and its commits. Knows of no YAML and no plan."""
