"""The bug lab: the classic mistakes of hand-written attention, each a part of its own.

Nothing here belongs into a model. A mistake is put into any model by one override, `+bug=NAME` (configs/bug), and
`demo=doctor` finds it again from inputs and outputs alone.

The symptoms in the docstrings were measured with `+experiment=induction trainer.precision=32-true` and seeds 0, 1, 2:
validation loss in nats an answer and accuracy (healthy: 0.014 to 0.025 and 0.995 to 0.997).
"""
