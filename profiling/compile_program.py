"""A program to compile, named so that another process can make it: a function that builds it, and plain arguments.

The compiler runs in a process of its own, which gets text. So a program is a reference `module:function` with JSON arguments; the
function is called there with the topology's devices and returns the jitted function with abstract arguments. What the
program is made of is named too, because its source text decides whether an earlier result still holds.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CompileProgram:
    """A jitted function with the arguments to lower it for: `jax.ShapeDtypeStruct`s in any structure, and static options.

    An argument without a sharding of its own is given to every device whole. `mesh` is the one the shardings and the function use,
    if any; `compiler_options` are XLA's own.
    """

    function: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    mesh: Any = None
    compiler_options: dict[str, str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramReference:
    """What to compile: `factory` is `module:function`, called with `devices` and `arguments`; `sources` are its modules and packages."""

    factory: str
    arguments: dict[str, Any]
    sources: tuple[str, ...]


def resolve(factory: str) -> Callable[..., CompileProgram]:
    """The function behind `module:function`."""
    module, _, name = factory.partition(":")
    found: Callable[..., CompileProgram] = getattr(importlib.import_module(module), name)
    return found


def source_files(name: str) -> list[Path]:
    """The Python files of a module or package, found without importing it; empty where there is none."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return []
    if spec.submodule_search_locations:
        return sorted(path for folder in spec.submodule_search_locations for path in Path(folder).rglob("*.py"))
    return [Path(spec.origin)]
