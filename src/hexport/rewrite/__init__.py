"""Rewrite rules: what Qualcomm's compiler refuses or gets wrong, said in operators it runs right.

One rule a file. A rule knows a pattern, when it applies (with a reason when it does not), and what to
put there; it knows nothing about backends.
"""
