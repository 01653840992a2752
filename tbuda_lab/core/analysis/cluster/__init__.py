"""The chips of a device as they stand to each other, and what a placement asks of each and of their links."""

from tbuda_lab.core.analysis.cluster.layout import positions
from tbuda_lab.core.analysis.cluster.use import ChipLinkUse, ChipUse, ClusterMap, cluster_map

__all__ = ["ChipLinkUse", "ChipUse", "ClusterMap", "cluster_map", "positions"]
