"""Which number format a run computes in."""

import platform

import torch

from minitf.errors import ConfigError

PRECISIONS = ("auto", "32-true", "bf16-mixed", "bf16-true", "16-mixed")


def resolve_precision(precision: str = "auto", accelerator: str = "auto") -> str:
    """Turn "auto" into a precision that Lightning knows; check any other.

    "auto" is "bf16-mixed" (weights in float32, matrix products in bfloat16) where the device has bfloat16
    instructions, else "32-true": emulated bfloat16 is slower than float32.

    Args:
        precision: one of PRECISIONS.
        accelerator: Lightning's name: "auto", "cpu", "cuda" or "gpu", "mps".

    Raises:
        ConfigError: an unknown precision.
    """
    precision = str(precision)
    if precision not in PRECISIONS:
        raise ConfigError(f"precision ({precision!r}) must be one of {', '.join(PRECISIONS)}")
    if precision != "auto":
        return precision
    if accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available():
        return "bf16-mixed" if has_bf16("cuda") else "32-true"
    if accelerator == "mps" or (accelerator != "cpu" and torch.backends.mps.is_available()):
        return "32-true"
    return "bf16-mixed" if has_bf16("cpu") else "32-true"


def has_bf16(device: str) -> bool:
    """Tell whether a device multiplies bfloat16 in hardware.

    Args:
        device: torch's name of its type: "cpu", "cuda", or another, of which it is not known.
    """
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and cpu_has_bf16()


def emulated(precision: str, device: str) -> str:
    """What there is to say of a precision that the device has no instructions for; "" where it has.

    Args:
        precision: as Lightning knows it.
        device: torch's name of its type; of others than "cpu" and "cuda" nothing is said.
    """
    name = {"cpu": "CPU", "cuda": "GPU"}.get(device)
    if name is None or not precision.startswith("bf16") or has_bf16(device):
        return ""
    return f"this {name} has no bfloat16 instructions and emulates it; trainer.precision=32-true is many times as fast"


def cpu_has_bf16() -> bool:
    """Tell whether this CPU multiplies bfloat16 in hardware (AVX512-BF16, AMX-BF16, or Arm BF16)."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    # torch's own oneDNN test is true for any AVX-512 CPU, where bfloat16 is emulated: ask for the instructions
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
