"""Graph to graph: decomposition, folding, layout. `run` is the entry; `PIPELINE` the ordered list."""

from tbuda_lab.core.passes.base import Pass, Report
from tbuda_lab.core.passes.pipeline import PIPELINE, TRAINING_PIPELINE, PassResult, run

__all__ = ["PIPELINE", "TRAINING_PIPELINE", "Pass", "PassResult", "Report", "run"]
