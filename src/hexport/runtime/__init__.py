"""Running packages, with the core install only."""
