"""Running code in other processes: the fork server, channels, pickling, isolation of parsers."""
