"""Bytes: named streams, where they live, how they arrive."""
