"""Text generation with Hugging Face models: a prefill graph and a decode graph, with a cache of keys and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.frames.opsframe import total_cycles
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

HIDDEN = -1e9
"""Added to the scores of places of the cache that hold nothing yet."""


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


class Prefill(nn.Module):
    """(1, length) tokens to (1, length, vocabulary) logits and the keys and values of every layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(input_ids=input_ids, use_cache=True)
        return (out.logits, *(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)))


class Decode(nn.Module):
    """One token, its position (1, 1), a mask (1, 1, 1, places + 1) and the cache, to logits and what is new of it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, mask: torch.Tensor, *cache: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache

        past = DynamicCache()
        for k in range(0, len(cache), 2):
            past.update(cache[k], cache[k + 1], k // 2)
        out = self.model(
            input_ids=input_ids, position_ids=position_ids, attention_mask=mask, past_key_values=past, use_cache=True
        )
        new = (t[:, :, -1:] for layer in out.past_key_values.layers for t in (layer.keys, layer.values))
        return (out.logits, *new)


class Encode(nn.Module):
    """The encoder of a sequence-to-sequence model: (1, length) tokens to their states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.encoder(input_ids=input_ids).last_hidden_state
        return states


class Rewrite(nn.Module):
    """The decoder of a sequence-to-sequence model on all tokens so far: (1, places, vocabulary) logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, decoder_input_ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            decoder_input_ids=decoder_input_ids, encoder_outputs=(states,), use_cache=False
        ).logits
        return logits


class Generator:
    """Generates tokens with a model of transformers on a device.

    The cache has `places` places for tokens; prompts are padded to `bucket` tokens (a multiple of it), so that few
    graphs are compiled. Sequence-to-sequence models run their encoder once and their decoder on `places` tokens.
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
        self.sessions: dict[str, Session] = {}

    def _run(self, key: str, make: Callable[[], nn.Module], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        if key not in self.sessions:
            self.sessions[key] = Session(make(), inputs, self.device, options=self.options, name=key)
        return list(self.sessions[key].run([inputs])[0])

    def tokens_per_second(self) -> float:
        """How many tokens the decode graph makes by the cost model (kernels alone); 0 before one was made."""
        session = next((s for key, s in self.sessions.items() if key.startswith("decode")), None)
        if session is None:
            return 0.0
        placement = session.compile().placement
        cycles = total_cycles([epoch.temporal for epoch in placement.epochs], placement.epoch_cycles)
        return float(session.device.clock_hz / cycles)

    def generate(
        self, prompt: Sequence[int], max_new_tokens: int = 32, sampling: Sampling | None = None, stop: int | None = None
    ) -> list[int]:
        """The new tokens, at most `max_new_tokens`; `stop` ends them and is among them.

        Raises `InputError` for an empty prompt, tokens outside the vocabulary, and more tokens than places.
        """
        tokens, vocabulary = [int(t) for t in prompt], int(self.model.config.vocab_size)
        if not tokens or any(not 0 <= t < vocabulary for t in tokens):
            raise InputError(f"a prompt is one token or more, each from 0 to {vocabulary - 1}")
        needed = max_new_tokens + (1 if self.two_stacks else len(tokens))
        if max_new_tokens < 1 or needed > self.places:
            raise InputError(f"{needed} tokens for a cache of {self.places} places; give more places")
        choose = (sampling or Sampling()).chooser()
        with torch.no_grad():
            step = self._rewriting(tokens) if self.two_stacks else self._caching(tokens)
            new_tokens = [choose(step(None))]
            while len(new_tokens) < max_new_tokens and new_tokens[-1] != stop:
                new_tokens.append(choose(step(new_tokens[-1])))
        return new_tokens

    def _caching(self, tokens: list[int]) -> Callable[[int | None], torch.Tensor]:
        """The logits after each token, by the cache: prefill first, then one token at a time."""
        length = -(-len(tokens) // self.bucket) * self.bucket
        ids = torch.zeros(1, length, dtype=torch.int64)
        ids[0, : len(tokens)] = torch.tensor(tokens)
        logits, *filled = self._run(f"prefill.{length}", lambda: Prefill(self.model), (ids,))
        cache = [torch.zeros(1, t.shape[1], self.places, t.shape[3]) for t in filled]
        for store, t in zip(cache, filled, strict=True):
            store[:, :, : len(tokens)] = t[:, :, : len(tokens)]
        held = len(tokens)

        def step(token: int | None) -> torch.Tensor:
            nonlocal held
            if token is None:
                return logits[0, len(tokens) - 1]
            mask = torch.full((1, 1, 1, self.places + 1), HIDDEN)
            mask[..., :held] = 0
            mask[..., -1] = 0
            inputs = (torch.tensor([[token]]), torch.tensor([[held]]), mask, *cache)
            out, *new = self._run("decode", lambda: Decode(self.model), inputs)
            for store, t in zip(cache, new, strict=True):
                store[:, :, held : held + 1] = t
            held += 1
            return out[0, -1]

        return step

    def _rewriting(self, tokens: list[int]) -> Callable[[int | None], torch.Tensor]:
        (states,) = self._run(f"encode.{len(tokens)}", lambda: Encode(self.model), (torch.tensor([tokens]),))
        written = [int(self.model.config.decoder_start_token_id or 0)]

        def step(token: int | None) -> torch.Tensor:
            written.extend([] if token is None else [token])
            ids = torch.zeros(1, self.places, dtype=torch.int64)
            ids[0, : len(written)] = torch.tensor(written)
            (logits,) = self._run(f"decode.{len(tokens)}", lambda: Rewrite(self.model), (ids, states))
            return logits[0, len(written) - 1]

        return step


TASKS = ("text-generation", "text2text-generation")


class Pipeline:
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


def pipeline(task: str, model: Any = None, tokenizer: Any = None, **settings: Any) -> Pipeline:
    """A pipeline of transformers on a device: "text-generation" or "text2text-generation" of a loaded model.

    settings: device, options, places, bucket of `Generator`. Raises `InputError` for another task.
    """
    if task not in TASKS:
        names = ", ".join(TASKS)
        raise InputError(f"pipeline {task!r} is not supported, only {names}; wrap the model in PyTorchModule")
    if isinstance(model, str) or model is None:
        raise InputError("pipeline takes a loaded model; load it with transformers' from_pretrained first")
    return Pipeline(Generator(model, **settings), tokenizer)
