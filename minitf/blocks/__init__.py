"""The parts of a transformer, one idea a file."""
