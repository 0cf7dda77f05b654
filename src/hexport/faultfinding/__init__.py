"""From a model that fails to the smallest piece of it that fails in the same way."""
