"""Queries without a matrix, values that are the keys."""

from minitf.blocks.projection.no_wq import NoWQ
from minitf.blocks.projection.tied_kv import TiedKV


class NoWQTiedKV(NoWQ, TiedKV):
    """No w_q, and w_k makes keys and values: nearest to K = V = h. Source: Bahdanau et al. 2015, section 3.1.

    There the decoder's state is the query and the encoder's states h are keys and values, each without a matrix of
    its own; here w_k and w_o are left.
    """
