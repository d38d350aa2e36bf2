"""What a head does, measured from its weights: one idea a file, `battery` puts them together.

found = battery(model, data.val_batches(), untrained=[another, ...])
found["1.0"].scores["prefix_matching"], found.called("induction"), found.to_dict()

Functions of tensors come first (`patterns`, `offsets`, `roles`, `alignment`, `sink`, `diversity`, `copying`); those of
models and batches use them (`measure`, `importance`, `syntax`, `battery`). Tensors are (B,H,T,S), heads apart; which
queries count is said in `rows`, and sums of pieces add up (`average`).
"""
