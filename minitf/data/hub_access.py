"""How the hub is asked: quickly refused where it cannot be reached, never executing code, one message per mistake."""

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitf.errors import DataError

PROBE_TIMEOUT = 3.0  # seconds for one step of a first request
PROBE_LIMIT = 4.0  # seconds in all; a name server that does not answer knows no timeout
LOOK_UP_TIMEOUT = 20.0  # seconds for a hub that has answered
FORMATS = ("parquet", "json", "csv", "text", "arrow")  # of `datasets`: tables and texts; nothing that could hold code


@dataclass
class Wanted:
    """What was asked for.

    Args:
        dataset, subset, revision: as typed.
        wanted_by: the choice that needs it.
        instead: what can be used where the hub cannot be reached.
    """

    dataset: str
    subset: str | None
    revision: str | None
    wanted_by: str = "data=hub"
    instead: str = (
        "data=python_stdlib, which needs no download, or your own text: data=text_files data.source.path=FOLDER"
    )


@dataclass
class Found:
    """A data set of the hub: its full name, commit and licence, and its rows by split."""

    name: str
    commit: str
    licence: str
    splits: dict[str, Iterable[dict]]


def why_unreachable() -> str | None:
    """None if the hub answers; else the reason, within PROBE_LIMIT seconds. Proxies of the environment are used."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode() or os.environ.get("HF_DATASETS_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "offline mode is set: HF_HUB_OFFLINE or HF_DATASETS_OFFLINE"
    said: list[str | None] = []

    def ask() -> None:
        try:
            status = get_session().head(constants.ENDPOINT, timeout=PROBE_TIMEOUT, follow_redirects=False).status_code
            said.append(None if status < 500 else f"it answers with status {status}")
        except Exception as error:  # of the network, of a proxy, of the address itself
            said.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_LIMIT)
    reason = said[0] if said else f"no answer within {PROBE_LIMIT:g} s"
    return None if reason is None else f"{constants.ENDPOINT}: {reason}"


def look_up(dataset: str, revision: str | None) -> Found:
    """What the hub knows of a data set; no rows yet. Raises DataError if it does not exist or may not be read."""
    from huggingface_hub import HfApi, errors

    try:
        info = HfApi().dataset_info(dataset, revision=revision, timeout=LOOK_UP_TIMEOUT)
    except errors.GatedRepoError as error:
        raise _gated(dataset) from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"the hub has no data set {dataset!r}, or it is private: check the name, or give a token that may read it "
            "(hf auth login, or HF_TOKEN)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DataError(
            f"{dataset} has no revision {revision!r}: leave data.source.revision out for the newest"
        ) from error
    except Exception as error:
        raise _unreadable(dataset, error) from error
    if f"{info.id.split('/')[-1]}.py" in {file.rfilename for file in info.siblings or []}:
        raise _script(info.id)
    licence = (info.card_data.get("license") if info.card_data else None) or ""
    return Found(info.id, info.sha, ", ".join(licence) if isinstance(licence, list) else licence, {})


def stream(wanted: Wanted, found: Found) -> Found:
    """The same with its rows, fetched while they are read. Raises DataError if it is not made of texts or tables."""
    import datasets  # takes a second to import

    with _quiet():
        try:
            # with the prefix a folder of that name on this machine is never taken for it
            builder = datasets.load_dataset_builder(f"hf://datasets/{found.name}", wanted.subset, revision=found.commit)
            _check_format(found.name, builder)
            rows = builder.as_streaming_dataset()
        except DataError:
            raise
        except Exception as error:
            raise _explain(found.name, wanted.subset, error) from error
    return Found(found.name, found.commit, found.licence, dict(rows))


def prepared_before(wanted: Wanted, reason: str) -> Found:
    """A data set that `datasets` prepared on this machine earlier. Raises DataError with `reason` if there is none."""
    import datasets

    unreachable = DataError(
        f"{wanted.wanted_by} cannot reach the hub ({reason}), and {wanted.dataset} is not in the cache of an earlier "
        f"run. Use {wanted.instead}"
    )
    with _quiet(), _offline():
        try:
            builder = datasets.load_dataset_builder(f"hf://datasets/{wanted.dataset}", wanted.subset)
            builder.download_and_prepare()
            rows = builder.as_dataset()
        except (ValueError, OSError) as error:
            if "multiple" in str(error) or "Available configs" in str(error):
                raise _explain(wanted.dataset, wanted.subset, error) from error
            raise unreachable from error
        except Exception as error:
            raise _unreadable(wanted.dataset, error) from error
    commit = str(builder.hash)
    if wanted.revision not in (None, commit, *_names_of(wanted.dataset, commit)):
        raise unreachable
    for name, split in rows.items():
        expected = builder.info.splits[name].num_examples
        if len(split) != expected:
            raise _unreadable(wanted.dataset, ValueError(f"{len(split)} rows where {expected} were written"))
    return Found(
        wanted.dataset, commit, str(builder.info.license or "not known: the hub could not be reached"), dict(rows)
    )


def guarded(found: Found, split: str) -> Iterator[dict]:
    """Rows of one split. Raises DataError for whatever goes wrong in reading them."""
    with _quiet():
        try:
            yield from found.splits[split]
        except Exception as error:  # of many kinds, from several libraries
            raise _explain(found.name, None, error) from error


def _check_format(name: str, builder: Any) -> None:
    modules = [kind.__module__ for kind in type(builder).__mro__]
    formats = [module.split(".")[2] for module in modules if module.startswith("datasets.packaged_modules.")]
    if not formats or formats[0] not in FORMATS:
        raise DataError(
            f"{name} is made of {''.join(formats[:1])} files, not of {', '.join(FORMATS)}: use another data set"
        )


def _explain(name: str, subset: str | None, error: Exception) -> DataError:
    text = str(error)
    names = re.search(r"(?:configs[^:\[]*|Available): (\[.*?\])", text, re.DOTALL)
    if "onfig name is missing" in text or ("multiple" in text and "configurations" in text):
        listed = names[1] if names else text.split("in the cache: ")[-1].splitlines()[0]
        return DataError(f"{name} has several subsets: choose one by data.source.subset=NAME, of {listed}")
    if names and subset is not None:
        return DataError(f"{name} has no subset {subset!r}, only {names[1]}: choose by data.source.subset=NAME")
    if "scripts are no longer supported" in text:
        return _script(name)
    if "gated" in text:
        return _gated(name)
    return _unreadable(name, error)


def _gated(name: str) -> DataError:
    return DataError(
        f"{name} is gated: accept its terms on its page of the hub, then give your token (hf auth login, or HF_TOKEN)"
    )


def _script(name: str) -> DataError:
    return DataError(
        f"{name} is loaded by a script of its own, and minitf never executes code of a data set. Many have a copy as "
        "parquet: try data.source.revision=refs/convert/parquet, or use another data set"
    )


def _unreadable(name: str, error: Exception) -> DataError:
    reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return DataError(f"{name} cannot be read from the hub ({reason:.300})")


def _names_of(dataset: str, commit: str) -> list[str]:
    """Branches and tags that stood for `commit` when the hub was last asked."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{dataset.replace('/', '--')}" / "refs"
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in files if path.read_text(encoding="utf-8").strip() == commit]


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines of `datasets`: the error says it all."""
    import datasets

    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)


@contextmanager
def _offline() -> Iterator[None]:
    """Both libraries refuse every request at once, as under HF_HUB_OFFLINE, which they read at import only."""
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
