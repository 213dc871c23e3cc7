"""What is to be done: the logical graph of a pipeline, its rewriting to a physical one, fingerprints. No data here."""
