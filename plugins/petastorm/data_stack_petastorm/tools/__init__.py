"""Tools of Petastorm's."""
