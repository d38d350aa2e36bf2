"""Demos: functions that print numbers at once. Each gets the whole config and returns its text.

What a demo computes, it computes with the parts that the config chose: another `model/attention/score` or `model/mask`
gives another table.
"""
