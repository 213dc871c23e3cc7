"""`dd why`: the updates of inputs that explain a record, found backwards through the operators, and checked by running on them alone."""
