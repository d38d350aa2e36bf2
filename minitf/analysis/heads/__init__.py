"""What a head does, measured from its weights: one idea a file, `battery` puts them together."""
