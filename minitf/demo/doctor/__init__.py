"""demo=doctor: which law of attention a model breaks, found from inputs and outputs alone.

Nothing here asks for the class of a part or reads a config: queries, keys and values of our own are given to each
attention module through `minitf.tap`, tokens are changed, and what comes out is compared.
"""
