"""`dd test`: the tests of a pipeline file, run in memory, replayed in other cuts, and held against what they expect."""
