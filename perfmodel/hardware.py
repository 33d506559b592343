"""The catalogue of chips: what each maker promises, one TOML file per chip, a source beside every number.

A roofline needs two peaks of a chip: bytes per second from main memory, β, and floating-point operations per second, π, for the
dtype in use. They are promises, not achievements: what a program reaches is a fitted efficiency in (0, 1] and lives in
`FittedModel`, never here. Data sheets like to headline sparse or half-precision-accumulate rates (twice the dense one); the
files hold dense figures only. A peak nobody published is left out, because a derived peak would make the speed-of-light
audit wrong in silence.
"""

import difflib
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from . import codec
from .errors import InputError
from .records import Hardware

_CATALOGUE = "chips"

MAX_CHIPS = 1024
"""More chips than one model is cut over."""


@cache
def names() -> tuple[str, ...]:
    """Names of the chips that ship, sorted."""
    folder = resources.files(__package__) / _CATALOGUE
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_hardware(name_or_path: str) -> Hardware:
    """The peaks of a chip in SI units, by catalogue name (`tpu-v5p`), TOML file, or saved `perf.hardware` record.

    `tpu-v5p:4` is the same chip four times, the model cut over them (tensor parallel). Raises `InputError` with the nearest names
    when nothing fits, and when a file is not a chip.
    """
    head, colon, number = name_or_path.rpartition(":")
    if colon and number.isdecimal():
        num_chips = int(number)
        if not 1 <= num_chips <= MAX_CHIPS:
            raise InputError(f"{num_chips} chips share no model", f"name 1 to {MAX_CHIPS}, as in tpu-v5p:4")
        return msgspec.structs.replace(_one_chip(head), num_chips=num_chips)
    return _one_chip(name_or_path)


def _one_chip(name_or_path: str) -> Hardware:
    name = name_or_path.strip().lower().replace("_", "-")
    if name in names():
        text = (resources.files(__package__) / _CATALOGUE / f"{name}.toml").read_text(encoding="utf-8")
        return parse_hardware(text, f"{name}.toml")
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return parse_hardware(path.read_text(encoding="utf-8"), str(path))
    if path.suffix == ".json" and path.is_file():
        return codec.load(path, Hardware)
    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names())}"
    raise InputError(f"no hardware called {name_or_path!r}", hint)


def parse_hardware(text: str, where: str) -> Hardware:
    """The chip that a TOML text describes. Raises `InputError` naming what is wrong and where."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}", "see perfmodel/chips for the layout") from error
    try:
        hardware = msgspec.convert(data, Hardware, strict=True)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} is not a chip: {error}", "see perfmodel/chips for the layout") from error
    _check(hardware, where)
    return hardware


def from_device_kind(device_kind: str) -> Hardware | None:
    """The catalogue chip whose JAX `device_kind` string this is, or None when no chip claims it."""
    wanted = device_kind.strip().lower()
    for name in names():
        hardware = load_hardware(name)
        if wanted in (kind.lower() for kind in hardware.device_kinds):
            return hardware
    return None


def _check(hardware: Hardware, where: str) -> None:
    peaks = {"bandwidth_bytes_per_s": hardware.bandwidth_bytes_per_s}
    peaks |= {f"flops_per_s.{dtype}": peak for dtype, peak in hardware.flops_per_s.items()}
    for field in ("memory_bytes", "on_chip_bytes", "link_bytes_per_s", "price_usd_per_hour", "dispatch_s"):
        peak = getattr(hardware, field)
        if peak is not None:
            peaks[field] = peak
    for field, peak in peaks.items():
        if not peak.value > 0 or peak.value == float("inf"):
            raise InputError(f"{where}: {field} must be a positive number, not {peak.value}", "use SI base units")
        if not peak.source.strip():
            raise InputError(f"{where}: {field} has no source", "every number names the document it comes from")
    if hardware.num_chips < 1:
        raise InputError(f"{where}: num_chips must be at least 1", "one chip is the usual case")
    if hardware.devices_per_chip < 1:
        raise InputError(f"{where}: devices_per_chip must be at least 1", "one JAX device per chip is the usual case")
