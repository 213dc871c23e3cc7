"""Pipeline files: from YAML text to a checked model, with every error at its place."""
