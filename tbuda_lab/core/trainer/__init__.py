"""Training of compiled models: on the device alone, or in sections of host and device."""

from tbuda_lab.core.trainer.device import Feed, Trainable, Trainer
from tbuda_lab.core.trainer.split import SplitTrainer

__all__ = ["Feed", "SplitTrainer", "Trainable", "Trainer"]
