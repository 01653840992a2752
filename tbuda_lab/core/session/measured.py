"""Measured profiles of a session's model: read, matched to its ops, laid over its placement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.core.errors import InputError, quantity
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.measured import MeasuredProfile, read_profile
from tbuda_lab.core.measured.kernels import Estimate, load_kernels, machine_of, packaged_kernels, profile_machine
from tbuda_lab.core.measured.match import Match, Pair, match_profile
from tbuda_lab.core.measured.model_ops import model_estimates
from tbuda_lab.core.measured.overlay import MeasuredOverlay, overlay
from tbuda_lab.core.measured.profile import size_text
from tbuda_lab.core.measured.steps import PRODUCTS, graph_steps

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

MOST_OTHER = 0.25
"""Share of weights of another size from which a profile is taken for one of another model."""
FEWEST = 0.25
"""Share of its products below which a profile is taken for one of another model."""


class Measured:
    """The profile of a session and what it says of the present placement."""

    def __init__(self, state: SessionState, compiles: Compiles) -> None:
        self._state, self._compiles = state, compiles
        self._match: Match | None = None
        self._kernels = packaged_kernels()
        self._overlay: tuple[int, MeasuredOverlay] | None = None

    @property
    def profile(self) -> MeasuredProfile | None:
        """The profile that was loaded last."""
        return None if self._match is None else self._match.profile

    def load(self, path: str | Path | MeasuredProfile, kernels: str | Path | None = None) -> MeasuredOverlay:
        """See `Session.load_profile`."""
        table = packaged_kernels() if kernels is None else load_kernels(Path(kernels))
        profile = path if isinstance(path, MeasuredProfile) else read_profile(path)
        profile_machine(profile)
        self._need_parameters(profile)
        found = match_profile(profile, self._compiles.trace())
        heavy = [op for op in (*(p.measured for p in found.pairs), *found.unmatched) if op.group in PRODUCTS]
        matched = sum(p.measured.group in PRODUCTS for p in found.pairs)
        has = any(step.group in PRODUCTS for step in graph_steps(self._compiles.trace()))
        if not found.pairs or matched < FEWEST * len(heavy) or (has and not matched):
            raise InputError(
                f"{profile.name} is a profile of another model: {matched} of its {len(heavy)} products "
                f"have a partner in {self._state.name!r}; tbuda_lab.widgets.open_profile shows it alone"
            )
        self._need_weights(found)
        if not found.times():
            raise InputError(
                f"{profile.name}: none of its {quantity(len(found.pairs), 'op')} that {self._state.name!r} has was "
                "measured: there is nothing to lay over it; profile it with the device's times"
            )
        before = self._match, self._kernels, self._overlay
        self._match, self._kernels, self._overlay = found, table, None
        try:
            result = self.overlay()
        except Exception:  # the model does not compile: nothing changes
            self._match, self._kernels, self._overlay = before
            raise
        self._state.events.emit("measured", result)
        return result

    def _need_weights(self, found: Match) -> None:
        """Raises `InputError` where more than a quarter of the products have weights of another size: another batch or
        length of the same model has the same. One that runs several products of the model at once counts as right."""
        known = [p for p in found.pairs if p.same_weights is not None]
        other = [p for p in known if not p.same_weights and not self._runs_fused(p)]
        if len(other) > MOST_OTHER * len(known):
            graph = self._compiles.trace()
            mine = "x".join(map(str, graph[graph[other[0].op].sources[1]].shape))
            raise InputError(
                f"{found.profile.name} is a profile of another model: {len(other)} of the {len(known)} products that "
                f"have a partner in {self._state.name!r} have weights of another size: {other[0].measured.name} "
                f"(row {other[0].measured.row}) is {other[0].measured.shape_text}, and {other[0].op} has {mine}; "
                "tbuda_lab.widgets.open_profile shows it alone"
            )

    def _runs_fused(self, pair: Pair) -> bool:
        """Whether a product has the inner length of its partner and a whole number of times its columns, as one of
        queries, keys and values at once."""
        node = self._compiles.trace()[pair.op]
        measured = pair.measured
        if measured.group != "matmul" or not measured.inputs or not measured.outputs:
            return False
        inner, columns = self._compiles.trace()[node.sources[0]].shape[-1], node.shape[-1]
        wide = measured.outputs[0].shape[-1]
        return measured.inputs[0].shape[-1] == inner and wide > columns and wide % columns == 0

    def _need_parameters(self, profile: MeasuredProfile) -> None:
        """Raises `InputError` for a trace of ours whose model had other parameters: names of ops alone are those of any
        model of the same modules."""
        mine = {n.name: tuple(n.shape) for n in self._compiles.trace().of_kind(NodeKind.PARAMETER)}
        both = {**profile.parameters, **mine}
        other = [name for name in both if mine.get(name) != profile.parameters.get(name)]
        if profile.parameters and len(other) > MOST_OTHER * len(both):
            its, own = (size_text(shapes, other[0]) for shapes in (profile.parameters, mine))
            raise InputError(
                f"{profile.name} is a trace of another model: {len(other)} of {quantity(len(both), 'parameter')} are "
                f"others in {self._state.name!r}: {other[0]} is {its}, and in {self._state.name!r} {own}; "
                "tbuda_lab.widgets.open_profile shows it alone"
            )

    def overlay(self) -> MeasuredOverlay:
        """See `Session.measured`; compiles what is not compiled yet. Raises `InputError` where no profile is loaded."""
        if self._match is None:
            raise InputError('no profile is loaded: session.load_profile("ops_perf_results.csv")')
        result = self._compiles.compile()
        if self._overlay is None or self._overlay[0] != id(result):
            self._overlay = id(result), overlay(self._match, result, self._kernels)
        return self._overlay[1]

    def estimates(self, arch: str, cores: int) -> Mapping[str, Estimate]:
        """By traced op what it would take of a stack that runs ops one by one; see `Session.run_by_op`."""
        return model_estimates(self._compiles.trace(), self._kernels, machine_of(arch), cores)
