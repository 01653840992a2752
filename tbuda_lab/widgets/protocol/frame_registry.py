"""Everything that pages may want: importing this registers the makers."""

from tbuda_lab.widgets.protocol import cluster_frames, diff_frames, memory_frames, pass_frames
from tbuda_lab.widgets.protocol.lazy_frames import MAKERS, frames_of
from tbuda_lab.widgets.views import plot_scripts

__all__ = ["MAKERS", "cluster_frames", "diff_frames", "frames_of", "memory_frames", "pass_frames", "plot_scripts"]
