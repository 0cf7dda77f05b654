"""From the user's model to one that runs whole on the NPU: shapes, clean-up, rules, each change proved."""
