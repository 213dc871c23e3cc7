"""Object stores, judged against files."""
