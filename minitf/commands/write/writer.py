"""A run's model that writes for prompts, in the way that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.commands.write.kinds import MASK, FillKind, SourceKind, TextKind, kind_of
from minitf.commands.write.parts import cache_factory, load_draft, rules_of, sampler_of
from minitf.commands.write.written import LENGTH, STOP_TOKEN, Written, tell
from minitf.errors import ConfigError
from minitf.files import user_path

if TYPE_CHECKING:
    from torch import nn

    from minitf.cache import KVCache
    from minitf.generation.generate import Step


class Writer:
    """Everything that is loaded and built once, whatever is written then.

    Args:
        cfg: as in configs/generate.yaml.
        run: folder of the run.
        stop_strings: texts that end a text.
        draft: folder of a run whose model drafts; None: there is none.
        prompt_cache: file that keeps what was read of a prompt; None: nothing is kept.
        option: name of the cache that was chosen, for what is told; None: that of its class.

    Raises:
        ConfigError: a value out of range, before anything is loaded; a run that cannot be loaded, or does not write.
    """

    def __init__(
        self,
        cfg: DictConfig,
        run: str,
        stop_strings: Sequence[str] = (),
        draft: str | None = None,
        prompt_cache: str | None = None,
        option: str | None = None,
    ) -> None:
        from minitf.generation.beam import check_beams
        from minitf.generation.prepare import prepare_decode
        from minitf.runs import load_run

        self.cfg, self.stop_strings = cfg, tuple(stop_strings)
        # a value out of range is told before the model is loaded
        self.sampler = sampler_of(cfg)
        self.make_cache = cache_factory(cfg) if cfg.cache else None
        self.option = option
        rules = rules_of(cfg, ())
        if cfg.beams > 1:
            check_beams(cfg.beams, cfg.n_best, cfg.length_penalty, cfg.max_new_tokens)
        loaded, tokenizer, run_cfg = load_run(user_path(run), cfg.checkpoint, list(cfg.allow))
        self.kind = kind_of(loaded, tokenizer, run_cfg, run, list(cfg.allow))
        self.stop = [] if isinstance(self.kind, FillKind) or not cfg.stop else [self.kind.end_id]
        self.rules = rules_of(cfg, self.stop) if rules else []
        # a prompt cache belongs to the weights as they were trained
        self.prompt_cache = prompt_cache
        self.trained = loaded if prompt_cache is not None else None
        # filling masks reads no single token; that compile=true is not for it is told by `check_kind`
        self.model = prepare_decode(loaded, compile=cfg.compile and not isinstance(self.kind, FillKind))
        self.notes: list[str] = []  # what is to be told once the text stands
        self.draft: nn.Module | None = None
        if draft is not None and isinstance(self.kind, TextKind):
            self.draft = prepare_decode(load_draft(draft, run, cfg, tokenizer), compile=cfg.compile)

    def new_caches(self, model: nn.Module | None = None) -> list | None:
        """Fresh caches of a model, of this one if none is given; None: the text is read again for every token."""
        return None if self.make_cache is None else (model or self.model).new_caches(self.make_cache)

    def tell_notes(self) -> None:
        """Say on standard error what there is to say about the text, behind it."""
        for note in self.notes:
            tell(note)
        self.notes = []

    def begin(self, prompts: Sequence[str], seed: int) -> tuple[Iterator[Step], list[Written], list]:
        """Steps, texts and streams for `follow`; the prompts are checked at once.

        Args:
            prompts: one row each.
            seed: of the first row; each has the next one.

        Raises:
            DataError, ConfigError: what a prompt cannot be.
        """
        texts = [Written(prompt, seed + i) for i, prompt in enumerate(prompts)]
        streams = [self.kind.stream(self.stop_strings) for _ in prompts]
        seeds = [text.seed for text in texts]
        if self.draft is not None:
            return self._speculate(prompts, seed), texts, streams
        if self.prompt_cache is not None:
            return self._with_prefix(prompts, seeds), texts, streams
        return self.steps(prompts, seeds, self.new_caches(), self.sampler), texts, streams

    def steps(
        self, prompts: Sequence[str], seeds: Sequence[int], caches: list | None, sampler: Any, **more: Any
    ) -> Iterator[Step]:
        """The plain loop of `generate`, for all prompts at once."""
        from minitf.generation.generate import generate

        return generate(
            self.model,
            **{**self.kind.read(self.model, prompts), **more},
            caches=caches,
            sampler=sampler,
            max_new_tokens=self.cfg.max_new_tokens,
            stop=self.stop,
            seeds=seeds,
            prefill_chunk=self.cfg.prefill_chunk,
            rules=self.rules,
        )

    def try_prompt(self, prompt: str) -> None:
        """Read nothing and write nothing; only find out whether a prompt can be written for.

        Raises:
            DataError, ConfigError: what it cannot be.
        """
        if isinstance(self.kind, FillKind):
            self.kind.read([prompt])
        else:
            self.steps([prompt], [0], self.new_caches(), self.sampler)

    def search(self, prompts: Sequence[str]) -> list[Written]:
        """The hypotheses of beam search: n_best for each prompt, best first."""
        from minitf.generation.beam import beam_search

        cfg, start = self.cfg, perf_counter()
        found = beam_search(
            self.model,
            **self.kind.read(self.model, prompts),
            n_beams=cfg.beams,
            n_best=cfg.n_best,
            length_penalty=cfg.length_penalty,
            max_new_tokens=cfg.max_new_tokens,
            stop=self.stop,
            caches=self.new_caches(),
            rules=self.rules,
            prefill_chunk=cfg.prefill_chunk,
        )
        seconds = perf_counter() - start
        texts = []
        for prompt, hypotheses in zip(prompts, found, strict=True):
            for rank, one in enumerate(hypotheses, start=1):
                stream = self.kind.stream()
                text = "".join([*map(stream.push, one.ids), stream.flush()])
                finished = STOP_TOKEN if one.finished else LENGTH
                extra = {"rank": rank, "score": one.score}
                texts.append(Written(prompt, None, text, one.ids, one.logprobs, finished, seconds, extra))
        return texts

    def fill(self, prompts: Sequence[str], seed: int) -> list[Written]:
        """The prompts with their masked places filled; `order` holds the places of tokens as they were filled."""
        from minitf.generation.infill import infill

        start = perf_counter()
        ids, pos = self.kind.read(prompts)
        texts = [Written(prompt, seed + i) for i, prompt in enumerate(prompts)]
        order: list[list[int]] = [[] for _ in prompts]
        tokenizer = self.kind.tokenizer
        for state in infill(
            self.model,
            ids,
            mask_id=tokenizer.mask_id,
            n_steps=self.cfg.steps,
            sampler=self.sampler,
            pos=pos,
            seeds=[text.seed for text in texts],
            special_ids=tokenizer.special_ids,
        ):
            ids = state.ids
            for i, text in enumerate(texts):
                for place in state.fixed[i].nonzero()[:, 0].tolist():
                    order[i].append(place - 1)  # the token that begins a document is none of the text
                    text.logprobs.append(float(state.logprobs[i, place]))
                    text.seconds = perf_counter() - start
        for i, text in enumerate(texts):
            row = ids[i] if pos is None else ids[i][pos[i] >= 0]
            text.ids = row.tolist()[1:]
            text.text = tokenizer.decode(text.ids)
            text.finished, text.extra = "filled", {"order": order[i]}
        return texts

    def _with_prefix(self, prompts: Sequence[str], seeds: Sequence[int]) -> Iterator[Step]:
        """The plain loop, with what a file holds of the prompt; where there is no file yet, it is written."""
        from minitf.generation.prefix import common, load_prefix, save_prefix

        path = user_path(self.prompt_cache)
        caches = self.trained.new_caches(self.make_cache)
        read = self.kind.read(self.model, prompts)
        ids, n_read = read["ids"], 0
        there = path.exists()
        if there:
            known = load_prefix(path, self.trained, caches)
            n_shared = min(common(ids, known), ids.size(1) - 1)
            n_read = n_shared if _go_back(caches, n_shared) else 0
            found = f"{n_read} of {ids.size(1)} tokens of the prompt were read from it"
            if n_read < n_shared:
                found = (
                    f"it begins with {n_shared} tokens of the prompt, but goes on otherwise, and this cache no longer "
                    "holds what stood before: the prompt was read anew"
                )
            self.notes.append(f"prompt cache {self.prompt_cache}: {found}")
        steps = self.steps(prompts, seeds, caches, self.sampler, n_read=n_read)

        def go_on() -> Iterator[Step]:
            for i, step in enumerate(steps):
                if i == 0 and not there:
                    save_prefix(path, self.trained, ids, caches)
                    self.notes.append(f"prompt cache {self.prompt_cache}: saved, {ids.size(1)} tokens")
                yield step

        return go_on()

    def _speculate(self, prompts: Sequence[str], seed: int) -> Iterator[Step]:
        """Speculative decoding; how well was drafted is said at the end."""
        from minitf.generation.speculative import speculate

        steps = speculate(
            self.model,
            self.draft,
            self.kind.read(self.model, prompts)["ids"],
            sampler=self.sampler,
            max_new_tokens=self.cfg.max_new_tokens,
            stop=self.stop,
            n_draft=self.cfg.n_draft,
            caches=self.new_caches(),
            draft_caches=self.new_caches(self.draft),
            seed=seed,
        )

        def go_on() -> Iterator[Step]:
            try:
                yield from steps
            finally:
                self.notes.append(
                    f"draft: {steps.n_accepted} of {steps.n_drafted} drafted tokens accepted ({steps.acceptance:.0%}), "
                    f"the model was run {steps.n_passes} times"
                )

        return go_on()


def _go_back(caches: Sequence[KVCache], n: int) -> bool:
    """Take caches back to their first n tokens; False where one has forgotten too much: then all are empty."""
    try:
        for cache in caches:
            cache.crop(n)
    except ConfigError:
        for cache in caches:
            cache.reset()
        return False
    return True


def needs_prompt(kind: TextKind | SourceKind | FillKind) -> str | None:
    """Why a kind of model cannot begin with nothing; None if it can."""
    if isinstance(kind, TextKind):
        return None
    if isinstance(kind, FillKind):
        return f"this run's model fills masked places: give a text with {MASK} where a token is missing, prompt=..."
    what = "its ids" if kind.spelling is None else "one"
    return f"this run's model reads a source: give {what}, such as prompt={kind.example!r}"
