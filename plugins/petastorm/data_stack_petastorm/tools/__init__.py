"""Tools of Petastorm."""
