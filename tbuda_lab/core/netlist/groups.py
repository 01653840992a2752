"""The groups under which PyBuda lists queues."""

from __future__ import annotations

from tbuda_lab.core.netlist.schema import Execute, Netlist, Queue, QueueSetting

GROUPS = ("input", "output", "parameter", "constant", "epoch_to_epoch", "accumulator")


def queue_groups(n: Netlist) -> dict[str, str]:
    """The group of every queue, from what feeds it, what reads it and how programs set its pointers.

    An op-fed queue is `epoch_to_epoch` if an op reads it, else `output`; an op-fed ram of a gradient op is an
    `accumulator`. A host-fed ram is a `parameter`; a host-fed queue whose read pointer never moves is a `constant`.
    """
    read = {i.source for _, op in n.ops() for i in op.inputs}
    gradients = {op.name for _, op in n.ops() if op.gradient_op}
    settings: dict[str, QueueSetting] = {}
    for program in n.programs:
        for instruction in program.instructions:
            if isinstance(instruction, Execute):
                for name, setting in (instruction.settings or {}).items():
                    settings.setdefault(name, setting)
    return {q.name: _group(q, q.name in read, q.input in gradients, settings.get(q.name)) for q in n.queues.values()}


def _group(q: Queue, is_read: bool, gradient: bool, setting: QueueSetting | None) -> str:
    if q.input != "HOST":
        if gradient and q.type == "ram":
            return "accumulator"
        return "epoch_to_epoch" if is_read and q.loc != "host" else "output"
    if q.type == "ram":
        return "parameter"
    pointer = setting.fields.get("rd_ptr_global") if setting else None
    fixed = isinstance(pointer, int) or (isinstance(pointer, str) and pointer.startswith("$c_"))
    return "constant" if fixed and q.entries == 1 else "input"
