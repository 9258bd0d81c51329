"""Orders and numbers that a seed decides, the same wherever and whenever they are drawn."""
