"""Batches whose samples together stay below a budget, such as a number of tokens."""
