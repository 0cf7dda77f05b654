"""``build``: from a model to a package that can be shipped."""
