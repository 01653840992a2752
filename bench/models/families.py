"""Families of models at small size with random weights: built here, judged against torch.

`python bench/models/families.py [NAME ...]` prints one line for each: PCC in Float16_b, and in Float32 below 0.99.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, Any]
FAMILIES: dict[str, Callable[[], Made]] = {}


def family(name: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        FAMILIES[name] = make
        return make

    return register


# -- language models of transformers ---------------------------------------------------------------------------
SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IDS = torch.randint(3, 96, (1, 32), generator=torch.Generator().manual_seed(1))
ENCODERS = (
    "Albert",
    "Bert",
    "Camembert",
    "ConvBert",
    "Data2VecText",
    "DebertaV2",
    "DistilBert",
    "Electra",
    "Ernie",
    "Esm",
    "IBert",
    "LayoutLM",
    "MobileBert",
    "MPNet",
    "Nystromformer",
    "Roberta",
    "RoFormer",
    "SqueezeBert",
    "XLMRoberta",
    "Splinter",
    "ModernBert",
)
DECODERS = (
    "Llama",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Gemma",
    "Gemma2",
    "Phi",
    "Phi3",
    "StableLm",
    "Starcoder2",
    "Olmo",
    "Olmo2",
    "Cohere",
    "GPTNeoX",
    "Granite",
    "Helium",
    "Glm",
    "Persimmon",
    "GPT2",
    "OPT",
    "Bloom",
    "CodeGen",
    "GPTJ",
    "GPTNeo",
    "Falcon",
    "XGLM",
    "BioGpt",
    "Nemotron",
)


def _configured(name: str) -> Made:
    import transformers

    config_type = getattr(transformers, f"{name}Config")
    fields = dict(SMALL)
    extra: dict[str, dict[str, Any]] = {
        "Albert": {"embedding_size": 32},
        "Electra": {"embedding_size": 64},
        "ConvBert": {"embedding_size": 64},
        "DistilBert": {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        "MobileBert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        "SqueezeBert": {"embedding_size": 64},
        "Esm": {"mask_token_id": 4},
        "RoFormer": {"embedding_size": 64},
        "Llama": {"num_key_value_heads": 2},
        "Mistral": {"num_key_value_heads": 2},
        "Qwen2": {"num_key_value_heads": 2},
        "Gemma": {"num_key_value_heads": 2, "head_dim": 16},
        "Gemma2": {"num_key_value_heads": 2, "head_dim": 16},
        "Qwen3": {"num_key_value_heads": 2, "head_dim": 16},
        "Helium": {"num_key_value_heads": 4, "head_dim": 16},
        "Glm": {"num_key_value_heads": 2, "head_dim": 16},
        "Phi3": {"original_max_position_embeddings": 64},
        "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "StableLm": {"num_key_value_heads": 4},
        "OPT": {"ffn_dim": 128, "word_embed_proj_dim": 64},
        "Bloom": {"n_layer": 2, "n_head": 4},
        "CodeGen": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
        "GPTJ": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
        "GPTNeo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "XGLM": {"d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128},
        "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16},
        "ModernBert": {"global_attn_every_n_layers": 2, "local_attention": 16},
        "Nystromformer": {"num_landmarks": 32, "segment_means_seq_len": 32},
        "Nemotron": {"num_key_value_heads": 4},
    }
    fields.update(extra.get(name, {}))
    config = config_type(**fields)
    config._attn_implementation = "eager"
    config.use_cache = False
    if name in DECODERS:
        model_type = getattr(transformers, f"{name}ForCausalLM", None) or getattr(transformers, f"{name}LMHeadModel")
    else:
        model_type = getattr(transformers, f"{name}Model")
    return model_type(config), {"input_ids": IDS}


for _name in (*ENCODERS, *DECODERS):
    FAMILIES[_name] = lambda name=_name: _configured(name)  # type: ignore[misc]


@family("CLIPText")
def clip_text() -> Made:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(**SMALL)
    ids = IDS.clone()
    ids[0, 20] = 2
    return CLIPTextModel(config), {"input_ids": ids}


@family("CLIPVision")
def clip_vision() -> Made:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    return CLIPVisionModel(config), {"pixel_values": _image(32)}


@family("Perceiver")
def perceiver() -> Made:
    from transformers import PerceiverConfig, PerceiverModel

    config = PerceiverConfig(
        num_latents=32,
        d_latents=64,
        d_model=48,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
    )
    return PerceiverModel(config), {"inputs": torch.randn(1, 40, 48)}


@family("T5Encoder")
def t5() -> Made:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return T5EncoderModel(config), {"input_ids": IDS}


def _seq2seq(name: str, **fields: Any) -> Made:
    import transformers

    small = dict(
        vocab_size=96,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    config = getattr(transformers, f"{name}Config")(**{**small, **fields})
    config.use_cache = False
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForConditionalGeneration", None) or getattr(transformers, f"{name}MTModel")
    return model(config), {"input_ids": IDS, "decoder_input_ids": IDS[:, :16]}


for _name in ("Bart", "MBart", "Pegasus", "Marian", "Blenderbot", "M2M100"):
    FAMILIES[_name] = lambda name=_name: _seq2seq(name)  # type: ignore[misc]


# -- vision models of transformers -----------------------------------------------------------------------------
def _image(size: int, channels: int = 3) -> torch.Tensor:
    return torch.randn(1, channels, size, size, generator=torch.Generator().manual_seed(2))


VISION: dict[str, dict[str, Any]] = {
    "ViT": {"image_size": 32, "patch_size": 8},
    "DeiT": {"image_size": 32, "patch_size": 8},
    "Beit": {"image_size": 32, "patch_size": 8},
    "Dinov2": {"image_size": 28, "patch_size": 7},
    "ViTMSN": {"image_size": 32, "patch_size": 8},
    "YolosX": {},
}


def _vit(name: str, **fields: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, **fields
    )
    return getattr(transformers, f"{name}Model")(config), {"pixel_values": _image(fields["image_size"])}


for _name, _fields in VISION.items():
    if _fields:
        FAMILIES[_name] = lambda name=_name, fields=_fields: _vit(name, **fields)  # type: ignore[misc]


def _backbone(name: str, size: int, **fields: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{name}Config")(**fields)
    return getattr(transformers, f"{name}Model")(config), {"pixel_values": _image(size)}


BACKBONES: dict[str, tuple[int, dict[str, Any]]] = {
    "ResNet": (32, {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}),
    "RegNet": (32, {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8}),
    "ConvNext": (32, {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}),
    "ConvNextV2": (32, {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}),
    "PoolFormer": (
        32,
        {
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
        },
    ),
    "Segformer": (
        32,
        {
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "sr_ratios": [4, 2],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    "Swin": (
        32,
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4},
    ),
    "Swinv2": (
        32,
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4},
    ),
    "MobileNetV1": (32, {"depth_multiplier": 0.25, "image_size": 32}),
    "MobileNetV2": (32, {"depth_multiplier": 0.35, "image_size": 32}),
    "EfficientNet": (32, {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320}),
    "LeViT": (
        64,
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
    ),
    "Cvt": (32, {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 2, 3]}),
    "PvtV2": (
        32,
        {
            "image_size": 32,
            "hidden_sizes": [16, 32, 32, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "mlp_ratios": [2, 2, 2, 2],
        },
    ),
    "HGNetV2X": (32, {}),
}
for _name, (_size, _config) in BACKBONES.items():
    if _config:
        _type = "Levit" if _name == "LeViT" else _name
        FAMILIES[_name] = lambda n=_type, s=_size, f=_config: _backbone(n, s, **f)  # type: ignore[misc]


# -- networks of vision written here ---------------------------------------------------------------------------
def cbr(i: int, o: int, k: int = 3, s: int = 1, g: int = 1, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), act())


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, 8, 1), nn.Conv2d(8, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    def __init__(self, i: int, o: int, wide: int, s: int, se: bool, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        parts: list[nn.Module] = [cbr(i, wide, 1, act=act), cbr(wide, wide, 3, s, wide, act)]
        parts += [SqueezeExcite(wide)] if se else []
        self.body = nn.Sequential(*parts, nn.Conv2d(wide, o, 1, bias=False), nn.BatchNorm2d(o))
        self.skip = s == 1 and i == o

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.skip else self.body(x)


def head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


@family("MobileNetV3-small")
def mobilenet_v3() -> Made:
    act = nn.Hardswish
    return nn.Sequential(
        cbr(3, 16, 3, 2, act=act),
        Inverted(16, 16, 16, 2, True, nn.ReLU),
        Inverted(16, 24, 72, 2, False, nn.ReLU),
        Inverted(24, 24, 88, 1, False, nn.ReLU),
        Inverted(24, 40, 96, 1, True, act),
        Inverted(40, 40, 240, 1, True, act),
        Inverted(40, 48, 120, 1, True, act),
        cbr(48, 96, 1, act=act),
        *head(96),
    ), (_image(64),)


@family("OpenPose-light")
def openpose() -> Made:
    class Pose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(
                cbr(3, 16, 3, 2), cbr(16, 16, 3, 1, 16), cbr(16, 32, 1), cbr(32, 32, 3, 2, 32), cbr(32, 64, 1)
            )
            self.trunk = nn.Sequential(cbr(64, 64, act=nn.ELU), cbr(64, 64, act=nn.ELU), cbr(64, 64, act=nn.ELU))
            self.heat, self.paf = nn.Conv2d(64, 19, 1), nn.Conv2d(64, 38, 1)
            self.refine = nn.Sequential(cbr(121, 64), cbr(64, 64), cbr(64, 64), nn.Conv2d(64, 57, 1))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            f = self.stem(x)
            t = f + self.trunk(f)
            heat, paf = self.heat(t), self.paf(t)
            return heat, paf, self.refine(torch.cat([t, heat, paf], 1))

    return Pose(), (_image(48),)


@family("AlexNet")
def alexnet() -> Made:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2),
        nn.ReLU(),
        nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(288, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ), (_image(32),)


@family("VGG")
def vgg() -> Made:
    return nn.Sequential(cbr(3, 16), cbr(16, 16), nn.MaxPool2d(2), cbr(16, 32), nn.MaxPool2d(2), *head(32)), (
        _image(32),
    )


@family("SqueezeNet")
def squeezenet() -> Made:
    class Fire(nn.Module):
        def __init__(self, i: int, s: int, e: int) -> None:
            super().__init__()
            self.squeeze, self.one, self.three = nn.Conv2d(i, s, 1), nn.Conv2d(s, e, 1), nn.Conv2d(s, e, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.squeeze(x))
            return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(16, 8, 16),
        Fire(32, 8, 32),
        *head(64),
    ), (_image(33),)


@family("DenseNet")
def densenet() -> Made:
    class Dense(nn.Module):
        def __init__(self, i: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.BatchNorm2d(i + 8 * k), nn.ReLU(), nn.Conv2d(i + 8 * k, 8, 3, 1, 1)) for k in range(3)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.cat([x, layer(x)], 1)
            return x

    return nn.Sequential(cbr(3, 16, 3, 2), Dense(16), nn.Conv2d(40, 20, 1), nn.AvgPool2d(2), Dense(20), *head(44)), (
        _image(32),
    )


@family("ShuffleNet")
def shufflenet() -> Made:
    return nn.Sequential(
        cbr(3, 24, 3, 2), nn.Conv2d(24, 24, 1, groups=2), nn.ChannelShuffle(2), cbr(24, 24, 3, 1, 24), *head(24)
    ), (_image(32),)


@family("U-Net")
def unet() -> Made:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = cbr(3, 16), cbr(16, 32), cbr(32, 16)
            self.up = nn.ConvTranspose2d(32, 16, 2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.a(x)
            return self.c(torch.cat([a, self.up(self.b(F.max_pool2d(a, 2)))], 1))

    return UNet(), (_image(32),)


@family("FPN")
def fpn() -> Made:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), cbr(32, 32, 3, 2)
            self.la, self.lb, self.lc = nn.Conv2d(16, 16, 1), nn.Conv2d(32, 16, 1), nn.Conv2d(32, 16, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            a = self.a(x)
            b = self.b(a)
            c = self.lc(self.c(b))
            b = self.lb(b) + F.interpolate(c, scale_factor=2.0)
            return c, b, self.la(a) + F.interpolate(b, scale_factor=2.0)

    return Pyramid(), (_image(32),)


@family("YOLO")
def yolo() -> Made:
    act = nn.SiLU
    return nn.Sequential(
        cbr(3, 16, 3, 2, act=act),
        cbr(16, 32, 3, 2, act=act),
        nn.MaxPool2d(5, 1, 2),
        cbr(32, 32, act=act),
        nn.Conv2d(32, 21, 1),
    ), (_image(32),)


@family("video (conv3d)")
def video() -> Made:
    return nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ), (torch.randn(1, 3, 4, 16, 16),)


@family("N-BEATS")
def nbeats() -> Made:
    class Beats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 40))
                for _ in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros(x.shape[0], 8)
            x = x.flip(1)
            for block in self.blocks:
                back, forward = block(x).split([32, 8], 1)
                x, y = x - back, y + forward
            return y

    return Beats(), (torch.randn(1, 32),)


@family("autoencoder")
def autoencoder() -> Made:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 64), nn.Sigmoid()), (
        torch.rand(1, 64),
    )


@family("MLP-Mixer")
def mixer() -> Made:
    class Mix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 8, 8)
            self.n1, self.n2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.patch(x).flatten(2).mT
            x = x + self.tokens(self.n1(x).mT).mT
            return (x + self.channels(self.n2(x))).mean(1)

    return Mix(), (_image(32),)


@family("LSTM")
def lstm() -> Made:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.cell(x)[0])

    return Reads(), (torch.randn(1, 5, 16),)


@family("vector input")
def vector() -> Made:
    return nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 12)), (torch.randn(24),)


@family("matrix without batch")
def matrix() -> Made:
    return nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU()), (torch.randn(40, 24),)


# -- judging ---------------------------------------------------------------------------------------------------
def build(name: str) -> Made:
    """The model of a family, its random weights and running statistics the same every time, and its inputs."""
    torch.manual_seed(0)
    model, inputs = FAMILIES[name]()
    generator = torch.Generator().manual_seed(1)
    for key, buffer in model.named_buffers():
        if buffer.is_floating_point() and "running" in key:
            low, high = (0.5, 1.5) if "var" in key else (-0.2, 0.2)
            buffer.uniform_(low, high, generator=generator)
    return model.eval().requires_grad_(False), inputs


def correlation(want: torch.Tensor, got: torch.Tensor) -> float:
    a, b = want.double().flatten(), got.double().flatten()
    if a.numel() < 2 or float(a.std()) == 0:
        return 1.0 if torch.allclose(a, b, rtol=0.02, atol=1e-3) else 0.0
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def judge(name: str, data_format: str = "Float16_b") -> float:
    """The smallest PCC of the outputs on the simulated grid against torch in Float32."""
    from tbuda_lab.core import frontend
    from tbuda_lab.core.formats import parse_format
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    model, inputs = build(name)
    options = CompileOptions(default_df_override=parse_format(data_format))
    got = Session(model, inputs, options=options).run()[0]
    want = frontend.reference(model, inputs)
    return min(correlation(w, g) for w, g in zip(want, got, strict=True))


def main(names: list[str]) -> int:
    warnings.simplefilter("ignore")
    held = 0
    for name in names or FAMILIES:
        start = time.process_time()
        try:
            pcc = judge(name)
            note = "" if pcc >= 0.99 else f"  Float32 {judge(name, 'Float32'):.5f}"
            held += pcc >= 0.99
            print(f"{name:24s} {pcc:.5f}{note}  {time.process_time() - start:.1f} CPU s", flush=True)
        except Exception as error:
            print(f"{name:24s} {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    print(f"{held} of {len(names or FAMILIES)} with PCC >= 0.99")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
