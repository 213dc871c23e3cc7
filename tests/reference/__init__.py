"""What a pipeline means, in plain Python: the judge of the engine. Slow, short and free of any of the engine's code."""
