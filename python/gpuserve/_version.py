"""The package's version: that of the library it is built with."""

__version__ = "0.2.0"
