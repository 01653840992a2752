"""Backward graphs, optimizers and losses, written into the graph whose gradients they are."""

from tbuda_lab.core.passes.autograd.engine import GradientBuilder, differentiate, make_differentiable, summed_to

__all__ = ["GradientBuilder", "differentiate", "make_differentiable", "summed_to"]
