"""`pybuda.transformers.pipeline`: Hugging Face pipelines on a device. Not supported."""

from tbuda_lab.pybuda.op.common import refused

pipeline = refused("transformers.pipeline", "wrap the model in PyTorchModule and call run_inference")
NLPPipelineWrapper = refused("transformers.NLPPipelineWrapper", "wrap the model in PyTorchModule")

__all__ = ["NLPPipelineWrapper", "pipeline"]
