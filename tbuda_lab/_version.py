"""The version, in one place: the build and `tbuda --version` read it here."""

__version__ = "0.1.0"
