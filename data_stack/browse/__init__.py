"""A dataset as a page, in the web browser or in one file."""
