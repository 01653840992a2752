"""A Hugging Face model as one module of two parts: the prompt, and one token with the keys and values of those before.

Of each layer a ram holds the keys of the prompt, another those of the tokens since, and so for the values. The prompt's
part writes the first kind, the decode part reads both and writes the second (see `frontend.torch_model.caches`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tbuda_lab.core.errors import Diagnostic, InputError, ModelError
from tbuda_lab.core.frontend.torch_model.caches import kept, left
from tbuda_lab.serving.experts import every_expert

HIDDEN = -30000.0
"""Added to the scores of places that hold nothing yet: exp of it is 0 in every format."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """prompt: tokens that the prompt's part takes; new: places for tokens after it."""

    prompt: int
    new: int


class GenerationModel(nn.Module):
    """One pass of the prompt and one decoded token after it.

    Inputs: `input_ids` (1, prompt), `length` (1, 1) tokens of the prompt that count, `token` (1, 1), `held` (1, 1) the
    same number as `length` for the decode part, `step` (1, 1) the number of tokens decoded before this one. A decoder
    returns the logits of the prompt's last token (1, 1, vocabulary) and of the token; a sequence-to-sequence model
    those of the token alone. In torch `step` is 0: nothing was decoded before.
    """

    def __init__(self, model: Any, sizes: Sizes) -> None:
        """Raises `InputError` for more places than the model has, `ModelError` for one that keeps no cache of keys and
        values."""
        super().__init__()
        self.model = model
        self.sizes = sizes
        self.two_stacks = bool(model.config.is_encoder_decoder)
        self.windows = windows_of(model.config, sizes)
        self.device = next(model.parameters()).device
        self.cache = nn.ModuleList([Rams(*layer, sizes, self.device) for layer in cache_shapes(model)])

    @property
    def rams(self) -> list[Rams]:
        """Of every layer."""
        return [rams for rams in self.cache if isinstance(rams, Rams)]

    def sample(self) -> dict[str, torch.Tensor]:
        """Inputs of the right shapes."""
        one = torch.ones(1, 1, dtype=torch.int64, device=self.device)
        ids = {"input_ids": one.repeat(1, self.sizes.prompt) * 0}
        length = {"length": one * self.sizes.prompt}
        return {**ids, **length, "token": one.clone(), "held": one * self.sizes.prompt, "step": one * 0}

    def _here(self, step: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the places for new tokens: which hold one by now, which is this token's, and which are not."""
        places = torch.arange(self.sizes.new, device=self.device)
        mine = (places == step).reshape(1, 1, -1, 1)
        return places <= step, mine.float(), (~mine).float()


class DecoderGeneration(GenerationModel):
    """A model with one stack (Llama, GPT-2)."""

    def forward(
        self, input_ids: torch.Tensor, length: torch.Tensor, token: torch.Tensor, held: torch.Tensor, step: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = layers_cache([_PromptLayer() for _ in self.rams])
        last = torch.arange(self.sizes.prompt, device=self.device) == length - 1
        with every_expert(self.model), self._one_row(last):
            logits = self.model(input_ids=input_ids, past_key_values=prompt, use_cache=True).logits
        filled, here, elsewhere = self._here(step)
        places = torch.arange(self.sizes.prompt, device=self.device)
        seen = torch.cat([places < held, filled.reshape(1, -1)], -1)
        # how many tokens lie between a place and this token
        ages = torch.cat([held + step - places, step - torch.arange(self.sizes.new, device=self.device)], -1)
        masks = {kind: _mask(seen if window is None else seen & (ages < window)) for kind, window in self.windows}
        layers = []
        for rams, layer in zip(self.rams, prompt.layers, strict=True):
            before = left(layer.keys, rams.prompt_keys), left(layer.values, rams.prompt_values)
            layers.append(_DecodeLayer(rams, here, elsewhere, step, before))
        with every_expert(self.model):
            out = self.model(
                input_ids=token,
                position_ids=held + step,
                attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
                past_key_values=layers_cache(layers),
                use_cache=True,
            )
        return logits, out.logits

    @contextlib.contextmanager
    def _one_row(self, chosen: torch.Tensor) -> Iterator[None]:
        """While this lasts, logits are made of one row of the states alone; chosen: (1, prompt), true at that row."""
        row = chosen.float().reshape(1, 1, -1)
        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda _, states: (row @ states[0], *states[1:]))
        try:
            yield
        finally:
            hook.remove()


class TwoStackGeneration(GenerationModel):
    """A sequence-to-sequence model (T5): the prompt's part is the encoder, and what the decoder makes of it once."""

    def forward(
        self, input_ids: torch.Tensor, length: torch.Tensor, token: torch.Tensor, held: torch.Tensor, step: torch.Tensor
    ) -> torch.Tensor:
        from transformers import EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        places = torch.arange(self.sizes.prompt, device=self.device)
        states = self.model.get_encoder()(
            input_ids=input_ids, attention_mask=_mask((places < length).reshape(1, -1))
        ).last_hidden_state
        filled, here, elsewhere = self._here(step)
        own = layers_cache([_DecodeLayer(rams, here, elsewhere, step) for rams in self.rams])
        cross = layers_cache([_CrossLayer(rams) for rams in self.rams])
        out = self.model(
            decoder_input_ids=token,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=_mask((places < held).reshape(1, -1)),
            decoder_attention_mask=_mask(filled.reshape(1, -1)),
            past_key_values=EncoderDecoderCache(own, cross),
            use_cache=True,
        )
        logits: torch.Tensor = out.logits
        return logits


def generation_model(model: Any, sizes: Sizes) -> GenerationModel:
    """The kind that fits a model of transformers. Raises `ModelError` for a decoder that takes no `position_ids`."""
    if not model.config.is_encoder_decoder and "position_ids" not in inspect.signature(model.forward).parameters:
        name = type(model).__name__
        raise ModelError(
            f"generation cannot tell {name} where a token stands",
            [
                Diagnostic(
                    "error",
                    name,
                    "generation",
                    "it takes no position_ids and counts the places of an attention "
                    "mask instead (as models with ALiBi do)",
                    "generate with a model that takes position_ids, or run this one on all tokens each time",
                )
            ],
        )
    return (TwoStackGeneration if model.config.is_encoder_decoder else DecoderGeneration)(model, sizes).eval()


Shapes = tuple[tuple[int, int], tuple[int, int]]
"""Heads and their size, of the keys and of the values of a layer."""


class Rams(nn.Module):
    """The rams of one layer, as buffers."""

    prompt_keys: torch.Tensor
    prompt_values: torch.Tensor
    new_keys: torch.Tensor
    new_values: torch.Tensor

    def __init__(self, keys: tuple[int, int], values: tuple[int, int], sizes: Sizes, device: torch.device) -> None:
        super().__init__()
        for kind, (heads, size) in (("keys", keys), ("values", values)):
            for part, count in (("prompt", sizes.prompt), ("new", sizes.new)):
                self.register_buffer(f"{part}_{kind}", torch.zeros(1, heads, count, size, device=device))


def cache_shapes(model: Any) -> list[Shapes]:
    """Of every layer what its cache holds for a token. Raises `ModelError` for a model without such a cache."""
    device = next(model.parameters()).device
    one = torch.zeros(1, 1, dtype=torch.int64, device=device)
    try:
        with torch.no_grad():
            inputs = {"input_ids": one}
            if model.config.is_encoder_decoder:
                inputs["decoder_input_ids"] = one
            past = model(**inputs, use_cache=True).past_key_values
        layers = getattr(past, "self_attention_cache", past).layers
        return [((k.shape[1], k.shape[3]), (v.shape[1], v.shape[3])) for k, v in ((x.keys, x.values) for x in layers)]
    except (AttributeError, IndexError, TypeError) as error:
        name = type(model).__name__
        raise ModelError(
            f"{name} keeps no cache of keys and values",
            [
                Diagnostic(
                    "error",
                    name,
                    "generation",
                    str(error).split("\n")[0],
                    "generate with a model that has one for each layer, or run the model on all tokens each time",
                )
            ],
        ) from error


def windows_of(config: Any, sizes: Sizes) -> tuple[tuple[str, int | None], ...]:
    """By kind of attention that layers have, how many tokens it looks back, itself among them; None: to all.

    Raises `ModelError` for a kind that is neither whole nor a sliding window, `InputError` for a window in a model
    that builds its masks itself, if the cache has more places.
    """
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if not kinds:
        kinds = ["full_attention" if window is None else "sliding_attention"]
    known = {"full_attention": None, "sliding_attention": window}
    other = next((kind for kind in kinds if kind not in known), None)
    if other is not None:
        raise ModelError(
            f"generation has no cache for layers of the kind {other!r}; it has one for full_attention and "
            "sliding_attention"
        )
    own = getattr(config, "window_size", None)
    back = window if config.is_encoder_decoder else own if isinstance(own, int) else None
    if back is not None and sizes.prompt + sizes.new > back:
        raise InputError(
            f"the model looks back {back} tokens, and a cache of {sizes.prompt} + {sizes.new} places shows it more; "
            "give fewer places"
        )
    return tuple((kind, known[kind]) for kind in kinds)


def _mask(seen: torch.Tensor) -> torch.Tensor:
    """(1, 1, 1, places) to add to the scores."""
    return ((~seen).float() * HIDDEN).reshape(1, 1, 1, -1)


def layers_cache(layers: list[Any]) -> Any:
    """A cache of transformers with these layers."""
    from transformers.cache_utils import Cache, CacheLayerMixin

    CacheLayerMixin.register(_Layer)
    return Cache(layers=layers)


class _Layer:
    """What transformers asks of a layer of a cache."""

    is_sliding = False
    is_compileable = False
    is_initialized = True

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = keys, values
        return keys, values

    def get_seq_length(self) -> Any:
        return 0

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0


class _PromptLayer(_Layer):
    """Keeps the keys and values of the prompt."""


class _CrossLayer(_Layer):
    """What the decoder makes of the encoder's states: in the prompt's part, for all tokens."""

    def __init__(self, rams: Rams) -> None:
        super().__init__()
        self.rams = rams

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return left(keys, self.rams.prompt_keys), left(values, self.rams.prompt_values)


class _DecodeLayer(_Layer):
    """Writes the token's keys and values at its place; before: those of the prompt, if they are of the same stack."""

    def __init__(
        self,
        rams: Rams,
        here: torch.Tensor,
        elsewhere: torch.Tensor,
        step: torch.Tensor,
        before: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.rams, self.here, self.elsewhere, self.step, self.before = rams, here, elsewhere, step, before

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rams, here, elsewhere = self.rams, self.here, self.elsewhere
        keys = kept(rams.new_keys * elsewhere + keys * here, rams.new_keys)
        values = kept(rams.new_values * elsewhere + values * here, rams.new_values)
        if self.before is None:
            return keys, values
        return torch.cat([self.before[0], keys], -2), torch.cat([self.before[1], values], -2)

    def get_seq_length(self) -> torch.Tensor:
        return self.step.reshape(())
