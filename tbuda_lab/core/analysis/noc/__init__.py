"""What the links of a chip's two NoCs have to carry in an epoch: an estimate, since netlists assign no NoC."""

from tbuda_lab.core.analysis.noc.links import NOCS, LinkMap, LinkUse, NocFlow, link_map, sibling
from tbuda_lab.core.analysis.noc.transfers import Transfers, transfers_of
from tbuda_lab.core.device.noc import hops, link_bytes

__all__ = [
    "NOCS",
    "LinkMap",
    "LinkUse",
    "NocFlow",
    "Transfers",
    "hops",
    "link_bytes",
    "link_map",
    "sibling",
    "transfers_of",
]
