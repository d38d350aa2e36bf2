"""The definitions of head metrics as plain loops over numbers: slow, and written without looking at the fast ones."""

import math

import torch


def loops(weights, visible, q_pos, k_pos, ids=None, skip=4, crosses=False):
    """Metrics of one site, name -> list over heads; nan where nothing counts.

    weights (B,H,T,S), visible (B,T,S), q_pos (B,T), k_pos (B,S), ids (B,T) as nested tensors.
    """
    n_batch, n_heads, n_q, n_k = weights.shape
    rows = []
    for b in range(n_batch):
        n_seen = [int(visible[b, i].sum()) for i in range(n_q)]
        most = max((n for i, n in enumerate(n_seen) if q_pos[b, i] >= 0), default=0)
        for i in range(n_q):
            p = int(q_pos[b, i])
            if p >= 0 and n_seen[i] and not (p % 2**32 < skip and n_seen[i] < most):
                rows.append((b, i, n_seen[i]))
    found = {}
    for h in range(n_heads):
        of = {}
        for b, i, n_seen in rows:
            a = [float(x) for x in weights[b, h, i]]
            total = sum(a)
            e = -sum(x / total * math.log(x / total) for x in a if x > 0) if total else 0.0
            add(of, "row_mass", total)
            add(of, "entropy", e)
            if n_seen > 1:
                add(of, "entropy_normalised", e / math.log(n_seen))
            sees = [j for j in range(n_k) if visible[b, i, j]]
            same = [j for j in sees if crosses or int(k_pos[b, j]) >> 32 == int(q_pos[b, i]) >> 32]
            first = [j for j in same if int(k_pos[b, j]) % 2**32 == 0]
            add(of, "confidence", max((a[j] for j in range(n_k) if crosses or j not in first), default=0.0))
            if first:
                add(of, "sink", a[first[0]])
            if ids is None:
                continue
            before = [j for j in same if int(k_pos[b, j]) == int(q_pos[b, i]) - 1]
            if before:
                add(of, "previous_token", a[before[0]])
            copies = [j for j in range(i) if ids[b, j] == ids[b, i] and k_pos[b, j] >= 0]
            if [j for j in copies if j in sees]:
                add(of, "duplicate_token", sum(a[j] for j in copies if j in sees))
            after = [j + 1 for j in copies if j + 1 in sees and k_pos[b, j + 1] == k_pos[b, j] + 1]
            if after:
                add(of, "prefix_matching", sum(a[j] for j in after))
        for name, values in of.items():
            found.setdefault(name, [math.nan] * n_heads)[h] = sum(values) / len(values)
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def add(of, name, value):
    of.setdefault(name, []).append(value)
