"""How good answers are: plain functions of lists and tensors, each summed over a whole split."""
