"""The lines that random programs are made of.

`{f}` stands for a float tensor of the program, `{i}` for an integer one, `{b}` for one of truth values, `{t}` for any;
a digit behind it names another one (`{f2}`); `{c}` is a number, `{k}` a small whole one, `{d}` a dim of the first
tensor, `{e}` another dim, `{n}` its size there, `{s}` a special number, `{w}` a parameter of its last dim. A line is
taken if torch itself runs it.
"""

from __future__ import annotations

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "element-wise": (
        "{f}.relu()", "{f}.sigmoid()", "{f}.tanh()", "{f}.abs()", "{f}.neg()", "{f}.square()", "{f}.sin()",
        "{f}.cos()", "{f}.clamp(-3, 3).exp()", "{f}.abs().add(0.1).log()", "{f}.abs().sqrt()",
        "{f}.abs().add(0.5).rsqrt()", "{f}.abs().add(0.5).reciprocal()", "{f}.sign()", "{f}.erf()",
        "{f}.clamp({k}, {k})", "{f}.clamp(min={c})", "{f}.clamp(max={c})", "{f}.clamp({f2}, {f3})", "F.gelu({f})",
        "F.gelu({f}, approximate='tanh')", "F.silu({f})", "F.elu({f}, {c})", "F.softplus({f})",
        "F.softplus({f}, 2.0, 1.5)", "F.hardswish({f})", "F.hardsigmoid({f})", "F.hardtanh({f}, -0.5, 0.75)",
        "F.leaky_relu({f}, 0.2)", "F.relu6({f})", "F.mish({f})", "F.logsigmoid({f})", "F.celu({f}, 0.7)",
        "F.selu({f})", "F.glu({f}, {d})", "F.threshold({f}, {c}, {c})", "F.softshrink({f}, 0.3)",
        "F.hardshrink({f}, 0.3)", "F.tanhshrink({f})", "{f}.clamp(-3, 3).expm1()", "{f}.abs().log1p()",
        "{f}.abs().add(0.1).log2()", "{f}.atan()", "{f}.clamp(-0.9, 0.9).asin()", "{f}.clamp(-3, 3).sinh()",
        "{f}.pow(2)", "{f}.pow(3)", "{f}.abs().add(0.1).pow({c})", "{f}.round()", "{f}.floor()", "{f}.ceil()",
        "{f}.trunc()", "{f}.frac()", "{f}.nan_to_num()", "{f}.nan_to_num({c}, {c}, {c})",
    ),
    "arithmetic": (
        "{f} + {f2}", "{f} - {f2}", "{f} * {f2}", "{f} / ({f2}.abs() + 0.5)", "{f} + {c}", "{c} - {f}", "{f} * {c}",
        "{f} / {c}", "{f} * {s}", "{f} + {s}", "torch.maximum({f}, {f2})", "torch.minimum({f}, {f2})",
        "torch.maximum({f}, torch.tensor({s}))", "torch.minimum({f}, torch.tensor({s}))", "{f}.add({f2}, alpha={c})",
        "torch.rsub({f}, {f2}, alpha=2)", "torch.addcmul({f}, {f2}, {f3}, value={c})", "torch.lerp({f}, {f2}, 0.3)",
        "{f} % {k}", "{f}.remainder({c})", "{f}.fmod({c})", "{f} // {k}",
        "torch.div({f}, {c}, rounding_mode='floor')", "torch.div({f}, {c}, rounding_mode='trunc')",
        "torch.hypot({f}, {f2})", "torch.copysign({f}, {f2})", "torch.atan2({f}, {f2}.abs() + 0.1)", "{f} + {i}",
        "{f} * {i}", "{f} * {b}", "{f} + {b}", "{f} - {i}",
    ),
    "whole numbers": (
        "{i} + {i2}", "{i} * {i2}", "{i} - {i2}", "{i} * {k}", "{i} + {k}", "{i} // {k}", "{i} % {k}", "{i} / {k}",
        "{i} & {i2}", "{i} | {i2}", "{i} ^ {k}", "~{i}", "{i} << 2", "{i} >> 1", "{i}.abs()", "-{i}",
        "{i}.clamp(0, {k})", "{i} * 16777217", "{i}.sum({d})", "{i}.sum()", "{i}.cumsum({d})", "{i}.max()",
        "{i}.amax({d})", "{i}.float()", "{i}.to(torch.int32)", "{i}.to(torch.uint8)", "{i}.to(torch.int8)",
        "{i}.bool()", "{i}.float().mean({d})", "torch.maximum({i}, {i2})", "{i}.sign()", "{i}.pow(2)",
        "{i}.prod({d})", "{i}.float().mean()", "{i}.argmax({d})",
    ),
    "conditions": (
        "{f} > {c}", "{f} < {f2}", "{f} >= {f2}", "{f} <= {c}", "{f} == {f2}", "{f} != {f2}", "{f} > {s}",
        "{f} < {s}", "{f} == {s}", "{f} != {f}", "{i} > {k}", "{i} == {i2}", "{i} == {k}", "{i} <= {i2}",
        "{i} == 16777217", "{b} & {b2}", "{b} | {b2}", "{b} ^ {b2}", "~{b}", "{b} + {b2}", "{b} * {b2}",
        "{b}.logical_not()", "{b}.logical_or({b2})", "{b}.logical_xor({b2})", "{f}.logical_and({f2})",
        "{f}.logical_not()", "{f}.isnan()", "{f}.isinf()", "{f}.isfinite()", "{b}.any({d})", "{b}.all({d})",
        "{b}.any()", "{b}.all()", "{b}.sum({d})", "{b}.sum()", "{b}.float()", "{b}.long()", "{b}.int() + {b2}.int()",
        "{b}.cumsum({d})", "{f}.bool()", "{b} > {b2}", "{b} == {b2}", "{b}.float().mean({d})", "{f}.gt({c}).float()",
        "{b} + {k}", "{b} * {c}", "{b}.amax({d})",
    ),
    "masks": (
        "{f}.masked_fill({b}, {c})", "{f}.masked_fill({b}, {s})", "torch.where({b}, {f}, {f2})",
        "torch.where({b}, {f}, {c})", "torch.where({b}, {s}, {f})", "torch.where({f} > 0, {f}, {s})",
        "torch.where({b}, {i}, {i2})", "torch.where({b}, {i}, {k})", "{i}.masked_fill({b}, {k})",
        "{f}.masked_fill({f} > {c}, -inf).softmax({d})", "{f}.masked_fill({b}, -inf).amax({d})",
        "{f}.masked_fill({b}, -inf).softmax({d})", "{f}.masked_fill({b}, -1e9).log_softmax({d})", "{f}.triu()",
        "{f}.tril(-1)", "{f}.masked_fill({b}, inf).amin({d})", "torch.where({b}, {f}, torch.zeros(()))",
        "{f}.masked_fill(torch.ones({f}.shape[-2:]).triu(1).bool(), -inf).softmax(-1)",
    ),
    "moves": (
        "{t}.reshape(-1)", "{t}.flatten({d})", "{t}.transpose({d}, {e})", "{t}.unsqueeze({d})", "{t}.squeeze()",
        "{t}.flip({d})", "{t}.roll({k}, {d})", "{f}.roll(({k}, {k}), ({d}, {e}))", "{t}[..., 1:]", "{t}[..., ::2]",
        "{t}[..., -1]", "{t}[..., None]", "{t}.narrow({d}, 1, {n} - 1)", "{t}.select({d}, -1)", "{t}[1:]", "{t}[0]",
        "torch.cat([{f}, {f2}], {d})", "torch.cat([{f}, {f}], {d})", "torch.stack([{f}, {f2}], {d})",
        "torch.stack([{t}, {t}], {d})", "{t}.chunk(2, {d})[-1]", "{t}.split({k}, {d})[0]",
        "{t}.repeat_interleave(2, {d})", "{t}.expand(2, *{t}.shape)", "torch.tile({f}, (2, 1))",
        "F.pad({f}, (1, 2), value={c})", "F.pad({f}, (1, 0), value={s})", "F.pad({f}, (1, 1), mode='reflect')",
        "F.pad({f}, (-1, 2))", "{f}.unfold({d}, 2, 1)", "{t}.permute(*range({t}.dim() - 1, -1, -1))",
        "{t}.movedim(0, -1)", "{f}.diagonal()", "{f}.reshape({f}.shape[0], -1)",
        "{f}.index_select({d}, torch.tensor([0, 0]))", "{f}[..., torch.tensor([0, -1, 0])]",
        "{f}.gather({d}, {i}.abs() % {n})", "{f}.take_along_dim({f}.argsort({d}), {d})",
        "torch.meshgrid({f}.reshape(-1)[:3], {f2}.reshape(-1)[:4], indexing='ij')[1]", "{f}.unflatten({d}, (1, -1))",
        "{f}[{f}.shape[0] // 2:]", "F.pixel_shuffle({f}, 2)", "F.interpolate({f}, scale_factor=2)",
        "F.pad({t}, (0, 1))",
    ),
    "sums": (
        "{f}.sum({d})", "{f}.sum()", "{f}.mean({d})", "{f}.mean()", "{f}.amax({d})", "{f}.amin({d}, keepdim=True)",
        "{f}.max({d})[0]", "{f}.max({d})[1]", "{f}.min({d})[0]", "{f}.max()", "{f}.argmax({d})", "{f}.argmin({d})",
        "{f}.argmax()", "{f}.cumsum({d})", "{f}.clamp(-1, 1).cumprod({d})", "{f}.var({d})", "{f}.std({d})",
        "{f}.var({d}, correction=0)", "{f}.norm(dim={d})", "{f}.norm()", "{f}.norm(1, {d})", "{f}.logsumexp({d})",
        "{f}.softmax({d})", "{f}.log_softmax({d})", "{f}.sort({d})[0]", "{f}.topk(2, {d})[0]", "{f}.topk(2, {d})[1]",
        "{f}.argsort({d})", "{f}.median({d})[0]", "{f}.clamp(-1, 1).prod({d})", "{f}.count_nonzero({d})",
        "{f}.cummax({d})[0]", "{f}.sum(({d}, {e}))", "{f}.mean(({d}, {e}), keepdim=True)",
        "F.normalize({f}, dim={d})", "F.softmin({f}, {d})",
    ),
    "products": (
        "{f} @ {f2}", "{f} @ {f2}.transpose(-1, -2)", "torch.matmul({f}.transpose(-1, -2), {f2})",
        "torch.einsum('...i,...i->...', {f}, {f2})", "torch.outer({f}.reshape(-1)[:5], {f2}.reshape(-1)[:4])",
        "F.linear({f}, {w})", "F.layer_norm({f}, {f}.shape[-1:])", "F.layer_norm({f}, {f}.shape[-1:], {w}[0])",
        "F.rms_norm({f}, {f}.shape[-1:])", "F.linear({f}, {w}).relu()", "{f} * {w}[0]", "{f} + {w}[-1]",
        "F.scaled_dot_product_attention({f}, {f}, {f})",
        "F.scaled_dot_product_attention({f}, {f}, {f}, is_causal=True)",
        "F.scaled_dot_product_attention({f}, {f}, {f2}, attn_mask={b})", "F.cosine_similarity({f}, {f2}, dim={d})",
        "F.embedding({i}.abs() % {w}.shape[0], {w})", "F.one_hot({i}.abs() % 5, 5)",
        "F.one_hot({i}.abs() % 5, 5).float()",
    ),
    "images": (
        "F.max_pool2d({f}, 2)", "F.max_pool2d({f}, 3, 1, 1)", "F.avg_pool2d({f}, 2)", "F.avg_pool2d({f}, 3, 2, 1)",
        "F.avg_pool2d({f}, 3, 1, 1, count_include_pad=False)", "F.adaptive_avg_pool2d({f}, (2, 2))",
        "F.adaptive_avg_pool2d({f}, 1)", "F.max_pool1d({f}, 2)", "F.avg_pool1d({f}, 2)",
        "F.max_pool2d(F.pad({f}, (0, 1, 0, 1), value=-inf), 3, 2)", "F.unfold({f}, 2)",
        "F.interpolate({f}, scale_factor=2, mode='bilinear')",
        "F.conv2d({f}, torch.ones(2, {f}.shape[1], 2, 2) * 0.3)",
        "F.conv2d({f}, torch.ones({f}.shape[1], 1, 3, 3), padding=1, groups={f}.shape[1])",
        "F.pad({f}, (1, 1, 1, 1), mode='replicate')", "F.instance_norm({f})", "F.group_norm({f}, 1)",
        "F.conv1d({f}, torch.ones(2, {f}.shape[1], 2) * 0.3)", "F.lp_pool2d({f}, 2, 2)",
    ),
    "types": (
        "{f}.half().float()", "{f}.bfloat16().float()", "{f}.long()", "{f}.int()", "{f}.to(torch.uint8)",
        "{f}.double()", "{f}.clamp(-99, 99).long()", "{f}.clamp(-9, 9).int().float()",
        "{f}.clamp(0, 9).to(torch.uint8)", "{i}.double()", "{i}.half()", "{i}.to(torch.int16).float()",
        "{f}.clamp(-99, 99).to(torch.int8)", "({f} * 4).round().clamp(-99, 99).int() % 3",
    ),
    "allocation": (
        "torch.zeros_like({f}) + {f2}", "torch.ones_like({t})", "torch.full_like({f}, {c})",
        "torch.arange({n}) * {f}.select({d}, 0).sum()", "torch.full(({n},), {s}) * 1.0", "{f}.new_zeros(2, 3)",
        "torch.eye({n})[None] + {f}.mean()", "torch.linspace(0, 1, {n}) * {f}.mean()",
        "{f}.new_tensor([1.0, {s}]) + {f}.mean()", "{f} + torch.tensor({s})",
    ),
    "gradients stop": (
        "{f}.detach()", "{f}.detach() * {f2}", "({f}.round() - {f}).detach() + {f}",
        "F.dropout({f}, 0.5, self.training)",
    ),
}  # fmt: skip
"""Right hand sides, by family."""

STATEMENTS: tuple[str, ...] = (
    "{f}.add_({c})", "{f}.mul_({f2})", "{f}.clamp_(min={c})", "{f}.relu_()", "{f}[..., 0] = {c}",
    "{f}[..., 1:] = {f2}[..., 1:]", "{f}[..., ::2] *= {c}", "{f}[..., 1:] += {f2}[..., :-1].clone()", "{f}[1:] = 0",
    "{f}[{b}] = {c}", "{f}[{f} < 0] = 0", "{f}.masked_fill_({b}, {s})", "{f}.select({d}, 0).mul_({c})",
    "{f}.transpose({d}, {e}).add_({c})", "{f}.reshape(-1)[0] = {c}", "{f}.view(-1)[1:].mul_({c})",
    "{f}[0] = {f2}[0]", "{i}[..., 0] += {k}", "{i}[{b}] = {k}", "{b}[..., 0] = True", "{f}.zero_()",
    "{f}.fill_({c})", "{f}.copy_({f2})", "{f}.sub_({f2}, alpha=2)", "{f}.div_({c})",
    "{f}.narrow({d}, 0, 1).fill_({s})", "{f}.index_fill_({d}, torch.tensor([0]), {c})",
    "{f}.scatter_({d}, {i}.abs() % {n}, {c})", "{b}.logical_not_()", "{i}.mul_({k})", "{f}[..., -1:] = {f}[..., :1]",
    "{f}.unsqueeze(0).neg_()", "{f}.exp_()", "{f} += {f2}", "{f} *= {c}",
)  # fmt: skip
"""What writes into a tensor of the program (never into an input)."""

ALLOCATE: tuple[str, ...] = (
    "torch.empty_like({f})", "{f}.new_empty({f}.shape)", "torch.empty({f}.shape)", "torch.empty({f}.shape[-2:])",
)  # fmt: skip
"""Memory that a line behind it fills wholly."""
FILL: tuple[str, ...] = (
    "{v}[:] = {f}", "{v}[..., :1] = {c}; {v}[..., 1:] = {f}[..., 1:]",
    "{v}[..., ::2] = {f}[..., ::2]; {v}[..., 1::2] = {c}", "{v}.copy_({f})", "{v}.fill_({s})", "{v}.zero_()",
)  # fmt: skip
