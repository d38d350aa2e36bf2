"""Studies: the same question put to cells of settings over seeds, counted, and answered with a verdict."""
