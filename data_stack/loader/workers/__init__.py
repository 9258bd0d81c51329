"""Where batches are made: in the consumer's thread, in other threads, or in other processes."""
