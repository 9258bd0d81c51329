"""Training programs, ours and those of peers, each of which runs in a process of its own."""
