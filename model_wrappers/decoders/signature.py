"""How a decoder's function takes its options: as a struct, as a dataclass, by keywords, or not at
all."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

import msgspec

from model_wrappers.options import Options


@dataclass(frozen=True)
class Signature:
    """How a decoder's function takes its options.

    Attributes:
        options: the struct type that checks them.
        arguments: makes the function's arguments after the request, by name, from checked options.
    """

    options: type[Options]
    arguments: Callable[[Options], dict[str, Any]]


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read from a decoder's function how it takes options.

    The parameter after the request may be annotated with a struct derived from Options, or with a
    dataclass; it then has all options. Otherwise each parameter with a default is an option.

    Raises:
        ValueError: the function is no decoder, or an option has no default.
    """
    name = name_of_function(function)
    try:
        _, *parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # it has no signature, or no parameter
        raise ValueError(f"{name} is no decoder: it must take a request") from error
    types = [_type(parameter, function) for parameter in parameters]
    if parameters and _is_options(types[0]):
        return _by_struct(parameters[0], types[0])
    # The kinds 0 and 1 are positional parameters; *args and keyword-only ones come after them.
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in (0, 1)
    ]
    if not required:
        # *args and **kwargs have no default, and are no options.
        fields = [
            (parameter.name, annotation, parameter.default)
            for parameter, annotation in zip(parameters, types, strict=True)
            if parameter.default is not parameter.empty
        ]
        struct: Any = msgspec.defstruct(
            f"{name}_options", fields, bases=(Options,), frozen=True, kw_only=True
        )
        return Signature(struct, msgspec.structs.asdict)
    # One parameter without annotation or default: (request, options) of a decoder without options.
    first, *others = required
    if not others and first is parameters[0] and first.annotation is first.empty:
        return Signature(Options, lambda options: {first.name: options})
    raise ValueError(
        f"{name} is no decoder: it must take (request, options), the options annotated with a"
        " dataclass or a struct derived from model_wrappers.options.Options, or options with"
        " defaults by name"
    )


def _by_struct(parameter: inspect.Parameter, options_type: Any) -> Signature:
    """The signature of a function whose options are one argument, a struct or a dataclass."""
    defaults = parameter.default
    if defaults in (None, parameter.empty):
        try:
            defaults = options_type()
        except TypeError as error:
            raise ValueError(
                f"every option of {options_type.__name__} needs a default: {error}"
            ) from error
    is_struct = issubclass(options_type, Options)
    # The usual case needs no second struct. A default of the parameter replaces the type's.
    if is_struct and parameter.default is parameter.empty:
        return Signature(options_type, lambda options: {parameter.name: options})
    try:
        types = get_type_hints(options_type, include_extras=True)
    except NameError:  # a name that only type checkers import; the option then takes any value
        types = {}
    fields = [
        (name, types.get(name, Any), getattr(defaults, name))
        for name in inspect.signature(options_type).parameters
    ]

    def made(options: Options) -> Any:
        return options_type(**msgspec.structs.asdict(options))

    # Making the dataclass runs its __post_init__, where a dataclass checks its fields.
    struct: Any = msgspec.defstruct(
        options_type.__name__,
        fields,
        bases=(options_type if is_struct else Options,),
        namespace=None if is_struct else {"check": made},
        frozen=True,
        kw_only=True,
    )
    return Signature(struct, lambda options: {parameter.name: made(options)})


def name_of_function(function: Any) -> str:
    """The name in messages and records of a function, a lambda, a partial or a callable object."""
    inner = function_of(function)
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def function_of(function: Any) -> Any:
    """The function inside of partials and decorators."""
    while isinstance(function, partial):
        function = function.func
    return inspect.unwrap(function)


def _is_options(annotation: Any) -> bool:
    return isinstance(annotation, type) and (
        issubclass(annotation, Options) or dataclasses.is_dataclass(annotation)
    )


def _type(parameter: inspect.Parameter, function: Callable[..., Any]) -> Any:
    """The type of a parameter: its annotation, evaluated if it is text, or its default's type; Any
    if neither tells."""
    annotation = parameter.annotation
    default = parameter.default
    if annotation is parameter.empty:
        return type(default) if isinstance(default, bool | float | str) else Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function_of(function), "__globals__", {}))
    except Exception:  # an annotation may be any text, such as a name for type checkers alone
        return Any
