"""Dispatch by type, once: a look-up for the interpreter and an overload for the compiler.

A registry knows what belongs to a type of spec: to a policy its kernels, to a link its functions. A
function declared with `Registry.kernel` finds its implementation by the type of its first argument.
In Python that is a dictionary look-up; in compiled code Numba does the same look-up while it
compiles, so there is nothing left of it at run time, and what is registered outside this package
runs at the same speed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from numba.extending import overload, register_jitable

from zib.core.spec import KNOWN, saved_name
from zib.core.validate import InvalidParameterError, InvalidTypeError, shown

_F = TypeVar("_F", bound=Callable[..., Any])

# Kernels never own memory: without reference counting, handing a state from one kernel to the next
# is free (with it, a simulated round costs ten times as much).
INLINED: Any = {"_nrt": False, "forceinline": True}
CALLED: Any = {"_nrt": False, "forceinline": False}

jitable: Callable[[_F], _F] = register_jitable(**INLINED)
borrowing: Callable[[_F], _F] = register_jitable(**CALLED)


class Registry(dict[type, Any]):
    """What is registered for each type of spec.

    Parameters
    ----------
    noun
        What the registry holds, for error messages: "policy", "link".
    how
        How to register one.
    """

    all: ClassVar[list[Registry]] = []

    def __init__(self, noun: str, how: str) -> None:
        super().__init__()
        Registry.all.append(self)
        self.noun = noun
        self.how = how

    def add(self, spec_type: type, entry: Any) -> None:
        """Register `entry`, whose attributes are named like the kernels, for a type of spec."""
        if not (issubclass(spec_type, tuple) and hasattr(spec_type, "_fields")):
            raise InvalidParameterError(
                f"`spec_type` must be a zib.Spec or a NamedTuple class; got {spec_type.__name__}"
            )
        self[spec_type] = entry
        KNOWN[saved_name(spec_type)] = spec_type

    def lookup(self, spec: Any, name: str = "spec") -> Any:
        """Return what is registered for the type of `spec`, or raise a TypeError that says how.

        `name` is the parameter that the spec was given as.
        """
        found = self.get(type(spec))
        if found is None:
            raise InvalidTypeError(
                f"`{name}` must be a registered {self.noun}; got {shown(spec)}: "
                f"{type(spec).__name__} is not a registered {self.noun}; register it with "
                f"{self.how} first"
            )
        return found

    def kernel(self, jit_options: Any) -> Callable[[_F], _F]:
        """Declare a function that is looked up here, by name, for the type of its first argument.

        The decorated function gives the name, the signature and the docstring; its body is not run.
        """

        def declare(declaration: _F) -> _F:
            name = declaration.__name__
            parameter = next(iter(inspect.signature(declaration).parameters))

            @functools.wraps(declaration)
            def dispatch(spec: Any, *args: Any) -> Any:
                return getattr(self.lookup(spec, parameter), name)(spec, *args)

            @overload(dispatch, strict=False, jit_options=jit_options)
            def compiled(spec: Any, *args: Any) -> Any:
                found = self.get(getattr(spec, "instance_class", object))
                return None if found is None else getattr(found, name)

            return dispatch  # type: ignore[return-value]

        return declare
