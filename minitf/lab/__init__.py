"""The bug lab: the classic mistakes of hand-written attention, each a part of its own.

Nothing here belongs into a model. A mistake is put into any model by one override, `+bug=NAME` (configs/bug), and
`demo=doctor` finds it again from inputs and outputs alone.
"""
