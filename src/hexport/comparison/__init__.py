"""``compare``: the same model through two compilers or two backends, and whether the second is worse."""
