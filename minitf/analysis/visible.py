"""Which keys a query of a site may read."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.analysis.attention_rows import same_document
from minitf.analysis.forward import Batch, positions
from minitf.analysis.sites import Site


def visible(model: nn.Module, site: Site, batch: Batch) -> tuple[Tensor, Tensor]:
    """Pairs of a query and a key of one document, and those of them that the mask shows: bool (B,1,T,S).

    Args:
        model: the site's attention has a `mask`, as minitf's do, unless it reads another sequence: all of that is seen.
        site, batch: of the model.
    """
    q_pos, k_pos = positions(batch, site.kind)
    pairs = same_document(q_pos, k_pos, crossing=site.kind == "cross")
    if site.kind == "cross":
        return pairs, pairs
    mask = model.get_submodule(site.prefix).mask
    return pairs, pairs & mask.visible(q_pos[:, None, :, None], k_pos[:, None, None, :])
