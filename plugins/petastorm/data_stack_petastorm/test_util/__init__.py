"""Readers without a dataset, for tests of programs that use Petastorm's names."""
