"""Shapes as compiled HLO prints them: element type, dimensions, layout, and in which memory the buffer lives.

A layout such as `{1,0:T(8,128)(2,1)S(1)}` lists dimensions from minor to major, the tile that rows and columns are padded to, and
the memory space. No space, or `S(0)`, is main memory (HBM); `S(1)` is VMEM, `S(3)` a v4's CMEM, `S(6)` scalar memory: those
bytes never cross the memory bus. Padding does: a head of 64 channels in tiles of 128 lanes moves twice its size.
"""

import math
import re
from dataclasses import dataclass

from perfmodel.errors import InputError

HBM = 0
"""Memory space of main memory."""

_BITS = {"pred": 8, "token": 0, "opaque": 0}
_ARRAY = re.compile(r"(?P<type>[a-z]+\d*[a-z0-9]*)\[(?P<dims>[\d,<=]*)\](?:\{(?P<layout>[^{}]*)\})?|(?P<bare>token|opaque)\[\]")
_TILE = re.compile(r"T((?:\([\d,*]+\))+)")
_SPACE = re.compile(r"S\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Buffer:
    """One array: its dimensions, bits per element, memory space, and dimensions from minor to major with the tile on them."""

    dims: tuple[int, ...]
    bits: int
    space: int = HBM
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()

    @property
    def num_elements(self) -> int:
        """Elements without padding."""
        return math.prod(self.dims)

    @property
    def num_bytes(self) -> float:
        """Bytes in memory, padded to whole tiles."""
        order = self.minor_to_major or tuple(reversed(range(len(self.dims))))
        sizes = [self.dims[axis] for axis in order]
        if len(sizes) >= 2:
            # Vectors are left as they are: their one tile pads a few bytes to a few hundred.
            for place, width in enumerate(reversed(self.tile)):
                if place < len(sizes):
                    sizes[place] = -(-sizes[place] // width) * width
        return math.prod(sizes) * self.bits / 8

    @property
    def hbm_bytes(self) -> float:
        """Bytes in main memory: all of them, or none where the buffer lives on chip."""
        return self.num_bytes if self.space == HBM else 0.0


def element_bits(name: str) -> int:
    """Bits per element of an HLO element type such as `bf16`, `s32`, `f8e4m3fn` or `u4`. Raises `InputError` for no such type."""
    if name in _BITS:
        return _BITS[name]
    digits = re.match(r"(?:bf|f|s|u|c)(\d+)", name)
    if digits is None:
        raise InputError(f"the compiler printed an element type {name!r} that is not known", "this libtpu may be too new")
    return int(digits[1])


def parse_buffers(text: str) -> tuple[Buffer, ...]:
    """Every array in a shape's text, in order; a tuple's text gives its leaves."""
    return tuple(_buffer(match) for match in _ARRAY.finditer(text))


def _buffer(match: re.Match[str]) -> Buffer:
    layout = match["layout"] or ""
    order = layout.split(":", 1)[0]
    tile, space = _TILE.search(layout), _SPACE.search(layout)
    dims = tuple(int(size.removeprefix("<=")) for size in (match["dims"] or "").split(",") if size)
    tiles = [part.split(",") for part in re.findall(r"\(([\d,*]+)\)", tile[1])] if tile else []
    first = tuple(int(size) for size in tiles[0]) if tiles and "*" not in tiles[0] else ()
    return Buffer(
        dims=dims,
        bits=element_bits(match["type"] or match["bare"]),
        space=int(space[1]) if space else HBM,
        minor_to_major=tuple(int(axis) for axis in order.split(",") if axis.strip().isdigit()),
        tile=first,
    )
