"""torch.nn.Module -> Graph: `torch.export` traces, the aten table maps."""

from tbuda_lab.core.frontend.torch_model.importer import from_torch

__all__ = ["from_torch"]
