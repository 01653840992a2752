"""`pybuda.transformers.pipeline`: text generation by Hugging Face models on a device."""

from tbuda_lab.pybuda.op.common import refusing
from tbuda_lab.runtime.generation import pipeline

NLPPipelineWrapper = refusing("transformers.NLPPipelineWrapper", "use transformers.pipeline")

__all__ = ["NLPPipelineWrapper", "pipeline"]
