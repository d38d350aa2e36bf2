"""How much memory this machine has."""

import os


def total_memory() -> float:
    """Bytes of main memory; infinite where the system does not say (Windows)."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return float("inf")
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, on the CPU or on a GPU."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("allocate memory", "out of memory", "bad allocation")
    )
