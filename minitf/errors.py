"""The two errors that a user can cause; every other exception is a fault of minitf."""


class ConfigError(ValueError):
    """A choice that cannot work: the message says what is wrong, the values, and a way out."""


class DataError(ValueError):
    """Data that cannot be used: the message says what is wrong, where, and a way out."""
