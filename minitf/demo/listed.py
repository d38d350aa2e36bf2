"""demo=list: what there is to see."""

from __future__ import annotations

from omegaconf import DictConfig

from minitf.config import group_options
from minitf.demo.options import head_comment
from minitf.demo.text import paragraph, table
from minitf.hints import command


def listed(*, config: DictConfig) -> str:
    """The demos with one line each, from the heads of their files.

    Args:
        config: unused.
    """
    rows = [(f"  demo={name}", head_comment("demo", name)) for name in group_options("demo")]
    example = f"{command('demo')} demo=shapes model=llama_tiny"
    usage = paragraph(f"Choose one, for example: {example}")
    more = paragraph("--cfg job shows what a demo can be told, --help the options of every group.")
    return "\n".join(["Numbers at once, without training:", "", table(None, rows, left=2), "", usage, more])
