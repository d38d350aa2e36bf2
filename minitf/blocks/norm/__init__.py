"""Norms: bring each token's vector to unit size. A norm is called with the width, and maps (..., width) to itself."""
