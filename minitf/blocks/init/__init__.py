"""Initialisation rules: each is called once with the finished model."""
