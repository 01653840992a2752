"""Device images (`*.tti`): a compiled model in one archive, written and read back. Facts:
netlist-format.md#device-images."""

from tbuda_lab.core.tti.loaded_image import LoadedImage, ModuleFacts, as_trained, loaded_of, model_facts, module_facts
from tbuda_lab.core.tti.manifest import VERSION, ImageFacts
from tbuda_lab.core.tti.read import load_image, ours
from tbuda_lab.core.tti.tensors import DUMP_FORMATS
from tbuda_lab.core.tti.write import image_size, write_image

__all__ = [
    "DUMP_FORMATS",
    "VERSION",
    "ImageFacts",
    "LoadedImage",
    "ModuleFacts",
    "as_trained",
    "image_size",
    "load_image",
    "loaded_of",
    "model_facts",
    "module_facts",
    "ours",
    "write_image",
]
