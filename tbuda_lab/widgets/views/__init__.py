"""The widgets, each view with its traits."""
