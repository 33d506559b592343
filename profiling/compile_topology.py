"""Which TPU a program is compiled for: a chip, or a slice of several, as the compiler's topology names.

libtpu compiles for a description of devices; no chip need be there. A v4 chip has two cores, which the run time joins to one device
("megacore"); its description must ask for that, or it lists two devices per chip and a program gets half of one. A v5p is
joined by default. A v7x stays two devices, so a program for one device there owns half a chip.
"""

import math
import re
from dataclasses import dataclass, field

from perfmodel.errors import InputError

_OPTIONS: dict[str, dict[str, str]] = {"tpu-v4": {"chip_config_name": "megacore"}}
_PREFIXES = {"tpu-v4": "v4", "tpu-v5e": "v5e", "tpu-v5p": "v5p", "tpu-v6e": "v6e", "tpu-v7x": "tpu7x"}
_FLAT = ("tpu-v5e", "tpu-v6e")
"""Chips whose links form a plane; the others' form a cube."""

CHIPS = tuple(_PREFIXES)
"""Chips the compiler knows, oldest first."""

_SLICE = re.compile(r"^\d+(?:x\d+){1,2}$")


@dataclass(frozen=True)
class Topology:
    """A chip (`tpu-v5p`) and how many of them, per dimension of the links."""

    chip: str
    shape: tuple[int, ...]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The compiler's own name, as `v5p:2x2x1`."""
        return f"{_PREFIXES[self.chip]}:{'x'.join(map(str, self.shape))}"

    @property
    def bounds(self) -> tuple[int, ...]:
        """Chips per host in three dimensions: a slice of one host."""
        return (*self.shape, 1)[:3]

    @property
    def num_chips(self) -> int:
        """Chips in the slice."""
        return math.prod(self.shape)


def find_topology(name: str) -> Topology:
    """The topology of `tpu-v5p` (one chip) or of a slice such as `v5p:2x2x1`. Raises `InputError` for one that is not known."""
    text = name.strip().lower().replace("_", "-")
    chip, _, size = text.partition(":")
    by_prefix = {prefix: chip for chip, prefix in _PREFIXES.items()} | {"v7x": "tpu-v7x"}
    chip = by_prefix.get(chip, chip)
    if chip not in _PREFIXES:
        raise InputError(f"the TPU compiler knows no {name!r}", f"one of {', '.join(CHIPS)}, or a slice such as v5p:2x2x1")
    num_dimensions = 2 if chip in _FLAT else 3
    shape = (1,) * num_dimensions
    if size:
        if not _SLICE.match(size):
            raise InputError(f"{name!r} is not a slice of chips", "write v5p:2x2x1 or v6e:2x2")
        shape = tuple(int(part) for part in size.split("x"))
        if len(shape) != num_dimensions or math.prod(shape) < 1:
            example = "2x2" if num_dimensions == 2 else "2x2x1"
            raise InputError(
                f"{chip} slices have {num_dimensions} dimensions, and {size!r} has not", f"write {_PREFIXES[chip]}:{example}"
            )
    return Topology(chip, shape, _OPTIONS.get(chip, {}))
