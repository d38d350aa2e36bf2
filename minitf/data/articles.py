"""Lines of an encyclopedia to articles: WikiText's rows are lines, and its documents begin with a heading."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

_HEADING = re.compile(r"= [^=](.*[^=])? =")  # those of sections have more signs: "= = Plot = ="


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Join lines up to the next heading, which stands alone between empty lines, such as " = Title = ".

    What stands before the first heading is an article, too, unless it is empty.
    """
    article: list[str] = []
    before = ""
    for line, after in pairwise(chain(lines, [""])):
        alone = not before.strip() and not after.strip()
        if alone and _HEADING.fullmatch(line.strip()):
            yield from _joined(article)
            article = []
        article.append(line.rstrip("\n"))
        before = line
    yield from _joined(article)


def _joined(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text
