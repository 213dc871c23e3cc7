"""What others do with the same files: small programs, each with its whole work in view, that keep nothing."""
