"""Names that programs written for the original import from here."""
