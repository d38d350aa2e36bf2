"""What happens if a head, a write or an edge is another one: a weight is no cause, an intervention with a control is.

Heads are named as (site, number); sets of them as a mapping site -> numbers. A score is any function model -> float,
higher is better; `minitf.analysis.scores` has the usual ones. All of it is done in evaluation mode, by taps: the model
stays as it is.
"""
