"""Text generation with Hugging Face models: prompt and token are two programs of one image that share the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.batch_time import sum_epochs
from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import direction_of, forward_part, is_cache
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runnable, Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.tti import ImageFacts, load_image, loaded_of, model_facts, write_image
from tbuda_lab.serving.generation_model import Sizes, generation_model

PROMPT, TOKEN = "run_fwd_0", "run_fwd_1"
"""The programs of an image: the prompt at once, and one token."""
DECODE = forward_part(1)
"""The part of the graph that is run for each token."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: greedy, or drawn from the `top_k` likeliest with a temperature."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.top_k < 1:
            raise InputError("a temperature is positive and top_k is at least 1")

    def chooser(self) -> Callable[[torch.Tensor], int]:
        generator = torch.Generator().manual_seed(self.seed)

        def choose(logits: torch.Tensor) -> int:
            if not self.do_sample:
                return int(logits.argmax())
            values, places = (logits / self.temperature).topk(min(self.top_k, logits.numel()))
            drawn = torch.multinomial(values.softmax(-1), 1, generator=generator)
            return int(places[drawn])

        return choose


class GenerationRunner:
    """One compiled image on one simulated device. start: the token with which the decoder of a sequence-to-sequence
    model begins; cycles: of the decode program for a token."""

    def __init__(self, result: Runnable, start: int, cycles: int) -> None:
        """Raises `InputError` for an image that was not made for generation."""
        self.start, self.cycles = start, cycles
        self.sizes, self.vocabulary, self.two_stacks = facts_of(result.graph)
        self.clock_hz = result.device.clock_hz
        self.runner = Runner(result)

    def steps(self, tokens: list[int]) -> Callable[[int | None], torch.Tensor]:
        """The logits of what follows the prompt (called with None), then of what follows each token that is given."""
        count = len(tokens)
        ids = torch.zeros(1, self.sizes.prompt, dtype=torch.int64)
        ids[0, :count] = torch.tensor(tokens)
        length_tensor = torch.tensor([[count]])
        of_prompt = list(self.runner.run_program(PROMPT, {"input_ids": ids, "length": length_tensor}).values())
        done = 0

        def step(token: int | None) -> torch.Tensor:
            nonlocal done
            if token is None and not self.two_stacks:
                return of_prompt[0][0, -1]
            inputs = {
                "token": torch.tensor([[self.start if token is None else token]]),
                "held": length_tensor,
                "step": torch.tensor([[done]]),
            }
            done += 1
            (logits,) = self.runner.run_program(TOKEN, inputs).values()
            return logits[0, -1]

        return step


def facts_of(graph: Graph) -> tuple[Sizes, int, bool]:
    """Sizes, vocabulary and whether there are two stacks, from a traced graph. Raises `InputError`."""
    inputs = {n.name: n.shape for n in graph.inputs}
    rams = [n.shape[2] for n in graph.of_kind(NodeKind.PARAMETER) if is_cache(n) and "new_" in n.name]
    returned = [n for n in graph.outputs if "path" in n.attrs]
    logits = [n for n in returned if n.attrs.get("phase") == DECODE]
    if not {"input_ids", "length", "token", "held", "step"} <= inputs.keys() or not rams or len(logits) != 1:
        raise InputError(f"{graph.name!r} was not made for generation; Generator.save writes an image that was")
    return Sizes(inputs["input_ids"][1], rams[0]), logits[0].shape[-1], len(returned) == 1


class Generator:
    """Generates tokens with a model of transformers on a device.

    Prompts are padded to `bucket` tokens (a multiple of it); for each such length one image is compiled, in which the
    prompt is one program and a token another. The cache has `places` places for tokens; it stays on the device.
    """

    def __init__(
        self,
        model: Any,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
        places: int = 64,
        bucket: int = 32,
    ) -> None:
        if not isinstance(model, nn.Module) or not hasattr(model, "config"):
            raise ModelError(f"generation takes a model of transformers, not {type(model).__name__}")
        if places < 1 or bucket < 1:
            raise InputError("places and bucket are positive")
        self.model: Any = model.eval()
        self.device, self.options = device, options
        self.places, self.bucket = places, bucket
        config: Any = model.config
        self.two_stacks = bool(config.is_encoder_decoder)
        self.sessions: dict[int, Session] = {}  # by length of the prompt
        self._runners: dict[int, GenerationRunner] = {}
        self._used: GenerationRunner | None = None

    @classmethod
    def open(cls, path: str | Path) -> Generator:
        """What `save` wrote, without the model. Raises `InputError` for another file."""
        loaded = load_image(path)
        facts = loaded.manifest.get("compiler_cfg", {}).get("generation")
        numbers = [facts.get(k) for k in ("start", "cycles", "places")] if isinstance(facts, dict) else [None]
        if not all(isinstance(n, int) and n >= 0 for n in numbers) or not facts["cycles"]:
            raise InputError(f"{path} was not made for generation; Generator.save writes an image that was")
        start, cycles, places = (int(n) for n in numbers if n is not None)
        result = cls.__new__(cls)
        runner = GenerationRunner(loaded, start, cycles)
        result.model, result.device, result.options = None, loaded.device, loaded.options
        result.places, result.bucket, result.two_stacks = places, runner.sizes.prompt, runner.two_stacks
        result.sessions, result._runners, result._used = {}, {runner.sizes.prompt: runner}, runner
        return result

    def save(self, path: str | Path, prompt: int | None = None) -> None:
        """Write the image for prompts of up to so many tokens, by default one bucket. Raises `InputError` for an opened
        image that has another length, `OutputError`."""
        length = self._length(prompt or self.bucket)
        runner = self.runner(length)
        if length not in self.sessions:
            raise InputError("this generator was opened from an image; copy that file")
        result = self.sessions[length].compile()
        facts = {"generation": {"start": runner.start, "cycles": runner.cycles, "places": self.places}}
        modules = model_facts(self.sessions[length].model, "generation", result.graph)
        write_image(path, loaded_of(result, "generation", modules), ImageFacts(compiler_cfg=facts))

    def _length(self, count: int) -> int:
        return -(-count // self.bucket) * self.bucket

    def session(self, prompt: int | None = None) -> Session:
        """The session of the image for prompts of up to so many tokens, by default one bucket; views open it."""
        length = self._length(prompt or self.bucket)
        if length not in self.sessions:
            if self.model is None:
                raise InputError(f"the image takes prompts of up to {self.bucket} tokens, not {prompt}")
            shortest = 0 if self.two_stacks else length - self.bucket + 1
            sizes = Sizes(length, max(1, self.places - shortest))
            model = generation_model(self.model, sizes)
            self.sessions[length] = Session(model, model.sample(), self.device, options=self.options, name="generation")
        return self.sessions[length]

    def runner(self, prompt: int) -> GenerationRunner:
        """The compiled image for prompts of up to so many tokens."""
        length = self._length(prompt)
        if length not in self._runners:
            session = self.session(length)
            start = int(getattr(self.model.config, "decoder_start_token_id", None) or 0)
            self._runners[length] = GenerationRunner(session.compile(), start, decode_cycles(session))
        self._used = self._runners[length]
        return self._used

    def tokens_per_second(self) -> float:
        """How many tokens a second the decode program makes, by its simulated time. What was not compiled yet is now,
        for a prompt of one bucket; that needs no weights (a model on the meta device)."""
        if self._used is None:
            session = self.session()
            return float(session.device.clock_hz / decode_cycles(session))
        return float(self._used.clock_hz / self._used.cycles)

    def generate(
        self, prompt: Sequence[int], max_new_tokens: int = 32, sampling: Sampling | None = None, stop: int | None = None
    ) -> list[int]:
        """The new tokens, at most `max_new_tokens`; `stop` ends them and is among them.

        Raises `InputError` for an empty prompt, tokens outside the vocabulary, and more tokens than places.
        """
        tokens = [int(t) for t in prompt]
        vocabulary = int(self.model.config.vocab_size) if self.model is not None else self.runner(1).vocabulary
        if not tokens or any(not 0 <= t < vocabulary for t in tokens):
            raise InputError(f"a prompt is one token or more, each from 0 to {vocabulary - 1}")
        needed = max_new_tokens + (1 if self.two_stacks else len(tokens))
        if max_new_tokens < 1 or needed > self.places:
            raise InputError(f"{needed} tokens for a cache of {self.places} places; give more places")
        choose = (sampling or Sampling()).chooser()
        with torch.no_grad():
            step = self.runner(len(tokens)).steps(tokens)
            new_tokens = [choose(step(None))]
            while len(new_tokens) < max_new_tokens and new_tokens[-1] != stop:
                new_tokens.append(choose(step(new_tokens[-1])))
        return new_tokens


def decode_cycles(session: Session) -> int:
    """Cycles of the decode program for a token, as simulated."""
    epochs, time = session.compile().placement.epochs, session.time()
    chosen = [(e, t) for e, t in zip(epochs, time.epochs, strict=True) if e.direction == direction_of(DECODE)]
    return sum_epochs(tuple(e for e, _ in chosen), time.batch, tuple(t for _, t in chosen)).cycles


TASKS = ("text-generation", "text2text-generation")


class GenerationPipeline:
    """What `pipeline` returns: call it with text (needs a tokenizer) or with a list of token ids."""

    def __init__(self, generator: Generator, tokenizer: Any = None) -> None:
        self.generator, self.tokenizer = generator, tokenizer

    def __call__(self, prompt: str | Sequence[int], **settings: Any) -> list[dict[str, Any]]:
        """[{"generated_token_ids": ..., "tokens_per_second": ..., "generated_text": ... (with a tokenizer)}].

        settings: max_new_tokens, do_sample, temperature, top_k, seed, eos_token_id.
        """
        sampling = {k: settings.pop(k) for k in ("do_sample", "temperature", "top_k", "seed") if k in settings}
        count, stop = settings.pop("max_new_tokens", 32), settings.pop("eos_token_id", None)
        if settings:
            raise InputError(f"generation has no setting {next(iter(settings))!r}")
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InputError("text needs a tokenizer; give one to pipeline, or give token ids")
            ids = list(self.tokenizer(prompt)["input_ids"])
        else:
            ids = list(prompt)
        result = self.generator.generate(ids, count, Sampling(**sampling), stop)
        whole = result if self.generator.two_stacks else ids + result
        answer: dict[str, Any] = {
            "generated_token_ids": whole,
            "tokens_per_second": self.generator.tokens_per_second(),
        }
        if self.tokenizer is not None:
            answer["generated_text"] = self.tokenizer.decode(whole, skip_special_tokens=True)
        return [answer]


def pipeline(task: str, model: Any = None, tokenizer: Any = None, **settings: Any) -> GenerationPipeline:
    """A pipeline of transformers on a device: "text-generation" or "text2text-generation" of a loaded model.

    settings: device, options, places, bucket of `Generator`. Raises `InputError` for another task.
    """
    if task not in TASKS:
        names = ", ".join(TASKS)
        raise InputError(f"pipeline {task!r} is not supported, only {names}; wrap the model in PyTorchModule")
    if isinstance(model, str) or model is None:
        raise InputError("pipeline takes a loaded model; load it with transformers' from_pretrained first")
    return GenerationPipeline(Generator(model, **settings), tokenizer)
