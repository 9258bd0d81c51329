"""The samples of an iterator without those that were there before."""
