"""Measurements of speed and memory, always of several contenders in one run."""
