"""One file per architecture: the whole way from token ids to logits."""
