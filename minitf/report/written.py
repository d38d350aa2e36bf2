"""What is left on the disk: numbers, the page, figures, lists of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minitf.files import write_json
from minitf.report.bertviz import save_bertviz
from minitf.report.figures import draw_effects, draw_maps, draw_scores
from minitf.report.heads_found import heads_page
from minitf.report.heads_page import write_heads_page

if TYPE_CHECKING:
    from torch import nn

    from minitf.analysis.findings import Findings
    from minitf.analysis.forward import Batch
    from minitf.report.examples import Symbols
    from minitf.report.heads_data import HeadsPage


def write(
    out: Path,
    found: Findings,
    model: nn.Module,
    data: Symbols,
    batches: Sequence[Batch],
    snapshots: Iterator[tuple[int, nn.Module]],
    metrics: Sequence[dict[str, float]],
    *,
    n_examples: int,
    max_tokens: int,
    lang: str,
    with_figures: bool,
    bertviz: bool,
) -> tuple[HeadsPage, list[tuple[str, Path]]]:
    """Write everything into a folder.

    Args:
        out: the folder; older files of these names are replaced.
        found, model, data, batches, snapshots, metrics, n_examples, max_tokens: see `heads_page`.
        lang: of the page.
        with_figures, bertviz: also PNG and SVG; also lists of tensors.

    Returns:
        what the page shows; what each file is, and where.

    Raises:
        ConfigError: an example alone is too large for the page.
        OSError: a file cannot be written.
    """
    write_json(out / "heads.json", found.to_dict())
    files = [("numbers", out / "heads.json")]
    page = heads_page(found, model, data, batches, snapshots, metrics, n_examples, max_tokens)
    write_heads_page(out / "heads.html", page, lang)
    files.append(("page", out / "heads.html"))
    if with_figures:
        files += [("figure", path) for path in figures(out, page)]
    if bertviz:
        save_bertviz(out / "bertviz.pt", {example.label: example for example in page.examples})
        files.append(("bertviz", out / "bertviz.pt"))
    return page, files


def figures(out: Path, page: HeadsPage) -> list[Path]:
    """Maps of the first example by kind, scores by kind of each role that names a head, and effects; the PNG of each.

    Args:
        out: the folder.
        page: what was found.
    """
    first, written = page.examples[0], []
    for attention in first.attention:
        own = [layer for layer in page.layers if layer.kind == attention.kind]
        written += draw_maps(out / f"maps_{attention.kind}", attention, own, f"{page.title}, {first.label}")
    several = len(page.kinds()) > 1
    named = dict.fromkeys((head.kind, role.role) for head in page.heads for role in head.roles if role.named)
    for kind, role in named:
        name = f"scores_{kind}_{file_name(role)}" if several else f"scores_{file_name(role)}"
        written += draw_scores(out / name, [head for head in page.heads if head.kind == kind], role)
    tried = [head for head in page.heads if head.effect is not None]
    if tried:
        places = [f"{head.kind} {head.layer}.{head.head}" if several else f"{head.layer}.{head.head}" for head in tried]
        written += draw_effects(out / "effects", tried, places, page.effect_of)
    return [path for path in written if path.suffix == ".png"]


def file_name(role: str) -> str:
    """A role as a part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in role)
