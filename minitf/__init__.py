"""minitf: a mini transformer framework whose every block is a choice of the configuration."""

__version__ = "0.1.0"
