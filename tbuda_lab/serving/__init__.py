"""Models that are asked again and again: generation of text, sequence lengths in buckets, `torch.compile`."""
