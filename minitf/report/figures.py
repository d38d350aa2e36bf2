"""Figures for papers and slides: maps of one example, scores and ablation effects, as PNG and SVG."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minitf.files import atomic_file
from minitf.report.heads_data import Attention, Head, LayerHeads
from minitf.report.pack import to_numpy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASKED = "#cfc6b8"
MOST_LABELS = 24  # tokens that are written beside a map
SETTINGS = {"svg.hashsalt": "minitf", "svg.fonttype": "none"}  # the salt: else every SVG has its own names inside
CHINESE = ("Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei")


def ramp(t: np.ndarray) -> np.ndarray:
    """The colours of all maps, near white to dark blue, computed in OKLab; sRGB 0..1.

    Args:
        t: 0..1, any shape.

    Returns:
        the shape of t and one more dimension: red, green, blue.
    """
    light, a = 0.985 - 0.70 * t, -0.01 * t
    b = -0.005 - 0.11 * np.sin(np.pi * np.minimum(1, 0.8 * t + 0.1))
    roots = [
        light + 0.3963377774 * a + 0.2158037573 * b,
        light - 0.1055613458 * a - 0.0638541728 * b,
        light - 0.0894841775 * a - 1.2914855480 * b,
    ]
    long, medium, short = (root**3 for root in roots)
    linear = np.stack(
        [
            4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
        ],
        axis=-1,
    ).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def draw_maps(path: str | Path, attention: Attention, layers: Sequence[LayerHeads], title: str = "") -> list[Path]:
    """Every map of one example: rows are layers, columns are heads, one scale of 0 to 1 (square root), masked grey.

    Args:
        path: without an ending; .png and .svg are written.
        attention: the maps.
        layers: those of its kind.
        title: above all.

    Raises:
        OSError: a file cannot be written.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, PowerNorm

    colours = ListedColormap(ramp(np.linspace(0, 1, 1024))).with_extremes(bad=MASKED)
    norm = PowerNorm(0.5, vmin=0, vmax=1)
    maps = [to_numpy(w) for w in attention.weights]
    mask = attention.mask()
    most = max(len(w) for w in maps)
    n_queries, n_keys = mask.shape[1:]
    same_heads = len({layer.heads for layer in layers}) == 1
    small = max(n_queries, n_keys) > MOST_LABELS or len(maps) * most > 4

    def fill(figure: Figure) -> None:
        axes = figure.subplots(len(maps), most, squeeze=False)
        for i, heads in enumerate(maps):
            for h in range(most):
                ax = axes[i][h]
                if h >= len(heads):
                    ax.set_axis_off()
                    continue
                hidden = ~mask[min(i, len(mask) - 1)]
                image = np.ma.masked_array(heads[h], hidden)
                ax.imshow(image, cmap=colours, norm=norm, interpolation="nearest", aspect="equal")
                ax.set(xticks=[], yticks=[])
                if not small:
                    ax.set_xticks(range(n_keys), [_plain(t) for t in attention.keys], rotation=90, fontsize=6)
                    ax.set_yticks(range(n_queries), [_plain(t) for t in attention.queries], fontsize=6)
                if h == 0:
                    ax.set_ylabel(f"layer {layers[i].layer}")
                if i == 0 or not same_heads:
                    ax.set_title(f"head {layers[i].heads[h]}", fontsize=9)
        figure.colorbar(ScalarMappable(norm, colours), ax=axes, label="attention weight", shrink=0.8)
        if title:
            figure.suptitle(title)

    size = 1.4 if small else 3.2
    return save(path, fill, (size * most + 1.4, size * len(maps) * max(0.4, n_queries / max(n_keys, 1)) + 0.8))


def draw_scores(path: str | Path, heads: Sequence[Head], role: str) -> list[Path]:
    """Scores of one role by layer and head; heads that have the name by right have a frame.

    Args:
        path: without an ending; .png and .svg are written.
        heads: of one kind.
        role: one of theirs.

    Raises:
        OSError: a file cannot be written.
    """
    layers = sorted({h.layer for h in heads})
    numbers = sorted({h.head for h in heads})
    values = np.full((len(layers), len(numbers)), np.nan)
    framed = []
    for head in heads:
        for found in head.roles:
            if found.role == role:
                place = layers.index(head.layer), numbers.index(head.head)
                values[place] = found.score
                framed += [place] if found.named else []

    def fill(figure: Figure) -> None:
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Rectangle

        ax = figure.subplots()
        colours = ListedColormap(ramp(np.linspace(0, 1, 1024))).with_extremes(bad="white")
        image = ax.imshow(values, cmap=colours, vmin=0, vmax=max(1.0, np.nanmax(values, initial=1.0)), aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
        for i, j in framed:
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="#b3430a", linewidth=2))
        ax.set_xticks(range(len(numbers)), [str(n) for n in numbers])
        ax.set_yticks(range(len(layers)), [str(n) for n in layers])
        ax.set(xlabel="head", ylabel="layer", title=f"{role} (framed: above null and rule)")
        figure.colorbar(image, ax=ax, label="score")

    return save(path, fill, (0.8 * len(numbers) + 2.6, 0.6 * len(layers) + 1.4))


def draw_effects(path: str | Path, heads: Sequence[Head], names: Sequence[str], effect_of: str = "") -> list[Path]:
    """The change of the score when each head is switched off, with its controls as open circles on the same line.

    Args:
        path: without an ending; .png and .svg are written.
        heads: those that were not ablated are left out.
        names: of the heads.
        effect_of: the score.

    Raises:
        OSError: a file cannot be written.
    """
    tried = [(name, h) for name, h in zip(names, heads, strict=True) if h.effect is not None]

    def fill(figure: Figure) -> None:
        ax = figure.subplots()
        for i, (_, head) in enumerate(tried):
            ax.plot([0, head.effect], [i, i], color="#1d4fa8", linewidth=5, solid_capstyle="butt")
            ax.plot(head.controls, [i] * len(head.controls), "o", color="#575d68", fillstyle="none", markersize=5)
        ax.axvline(0, color="#575d68", linewidth=1)
        ax.set_yticks(range(len(tried)), [name for name, _ in tried])
        limit = max((abs(v) for _, h in tried for v in (h.effect, *h.controls)), default=1) * 1.1 or 1
        ax.set(xlim=(-limit, limit), ylim=(len(tried) - 0.4, -0.6), xlabel=f"change of {effect_of or 'the score'}")
        ax.set_title("switched off (bars), others instead (circles)", fontsize=10)

    return save(path, fill, (6, 0.26 * len(tried) + 1.4))


def save(path: str | Path, fill: Callable[[Figure], None], size: tuple[float, float]) -> list[Path]:
    """Draw a figure and write it as PNG and SVG, the same bytes for the same data.

    Args:
        path: without an ending.
        fill: draws into the figure.
        size: in inches.

    Raises:
        OSError: a file cannot be written.
    """
    # neither pyplot nor a display: nothing global is changed
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    paths = [Path(f"{path}.{ending}") for ending in ("png", "svg")]
    there = {font.name for font in fontManager.ttflist}  # a font that is missing would be complained about
    fonts = ["DejaVu Sans", *[name for name in CHINESE if name in there][:1]]
    with rc_context(SETTINGS | {"font.family": fonts}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a token in any script, shown as a box
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        fill(figure)
        for target in paths:
            empty: dict[str, Any] = {"Software": None} if target.suffix == ".png" else {"Date": None, "Creator": None}
            with atomic_file(target) as file:
                figure.savefig(file, format=target.suffix[1:], dpi=140, metadata=empty)
    return paths


def _plain(text: str) -> str:
    """A token without what matplotlib would read as a formula."""
    from minitf.report.text import token

    return token(text[:12]).replace("$", r"\$")
