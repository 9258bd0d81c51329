"""Columns as numbers and back: encoders, fitted on one split and the same in every process."""
