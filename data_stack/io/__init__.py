"""Bytes: named streams, their places, their arrival."""
