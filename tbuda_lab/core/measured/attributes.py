"""The attributes of an op in a profile: text in the form of a dict, with semicolons for commas.

    {'math_fidelity': 'HiFi2'; 'output_mem_config': 'MemoryConfig(memory_layout=...;shard_spec=std::nullopt)'}

Nothing is evaluated: quoted keys and values are cut out, and of a value's `name=word` pairs those that are wanted.
"""

from __future__ import annotations

import re

_PAIR = re.compile(r"'([A-Za-z0-9_]{1,64})'\s*:\s*'([^']{0,20000})'")
_WORD = re.compile(
    r"\b(fp32_dest_acc_en|packer_l1_acc|math_approx_mode|in0_block_w|per_core_M|per_core_N|mcast_in0|"
    r"M_block_size|K_block_size|N_block_size|out_subblock_h|out_subblock_w)\s*=\s*(\d{1,9}|true|false)"
)
_ENUM = re.compile(r"::([A-Z0-9_a-z]+)$")
_TYPE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,80})\(")
_OP_TYPE = re.compile(r"op_type=UnaryOpType::([A-Z0-9_]+)")
_WINDOW = re.compile(r"window_hw=\((\d+);\s*(\d+)\)")
_CONFIGS = ("program_config", "config", "compute_kernel_config")
_PLAIN = (
    "binary_op_type",
    "norm_type",
    "topology",
    "ring_size",
    "num_links",
    "dim",
    "is_causal",
    "softmax_type",
    "scalar",
    "pool_type_",
    "groups",
)
LONGEST = 1 << 20
"""Characters of attributes that are looked at."""


def read_facts(text: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of what is known by name: the class of the program config and its blocks, accumulation, the kind of
    an element-wise op. Text of another form gives fewer, never an error."""
    pairs = dict(_PAIR.findall(text[:LONGEST]))
    facts: dict[str, str] = {}
    for name in _CONFIGS:
        value = pairs.get(name, "")
        match = _TYPE.match(value)
        if match and name != "compute_kernel_config":
            facts["program"] = match.group(1)
        facts |= {key: word for key, word in _WORD.findall(value)}
    for name in _PLAIN:
        if name in pairs:
            enum = _ENUM.search(pairs[name])
            facts[name] = enum.group(1) if enum else pairs[name][:60]
    chain = _OP_TYPE.findall(pairs.get("op_chain", ""))
    if chain:
        facts["chain"] = " ".join(chain[:8])
    post = _OP_TYPE.findall(
        pairs.get("post_activations", "")
        + pairs.get("activation", "")
        + pairs.get("activations", "")
        + pairs.get("fused_activation", "")
    )
    if post:
        facts["activation"] = post[0]
    for name in ("config", "sliding_window_config_"):
        window = _WINDOW.search(pairs.get(name, ""))
        if window:
            facts["window"] = f"{window.group(1)}x{window.group(2)}"
    return tuple(sorted(facts.items()))
