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

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # after the request, by position and by name


@dataclass(frozen=True)
class Signature:
    """How a decoder's function takes its options.

    Attributes:
        options: the struct type that checks them.
        arguments: makes the function's arguments after the request from checked options.
    """

    options: type[Options]
    arguments: Callable[[Options], Arguments]


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
    types = [_evaluated(parameter.annotation, function) for parameter in parameters]
    if parameters and _is_options(types[0]):
        return _by_struct(parameters[0], types[0])
    # The kinds 0 and 1 are positional parameters; *args and keyword-only ones come after them.
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in (0, 1)
    ]
    if not required:
        option_types: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for parameter, annotation in zip(parameters, types, strict=True):
            # *args and **kwargs have no default, and are no options.
            if parameter.default is not parameter.empty:
                option_types[parameter.name] = _type(annotation, parameter.default)
                defaults[parameter.name] = parameter.default
        struct = _struct(f"{name}_options", option_types, defaults)
        return Signature(struct, lambda options: ((), msgspec.structs.asdict(options)))
    # One parameter without annotation or default: (request, options) of a decoder without options.
    if required == parameters[:1] and types[0] is inspect.Parameter.empty:
        return Signature(Options, lambda options: ((options,), {}))
    raise ValueError(
        f"{name} is no decoder: it must take (request, options), the options annotated with a"
        " dataclass or a struct derived from model_wrappers.options.Options, or options with"
        " defaults by name"
    )


def _by_struct(parameter: inspect.Parameter, options_type: Any) -> Signature:
    """The signature of a function whose options are one argument, a struct or a dataclass."""
    is_bound = parameter.default not in (None, parameter.empty)
    defaults = parameter.default if is_bound else _defaults(options_type)
    # The usual case needs no second struct. A default of the parameter replaces the type's.
    if parameter.default is parameter.empty and issubclass(options_type, Options):
        return Signature(options_type, lambda options: ((options,), {}))
    types = _types(options_type)
    struct = _struct(
        options_type.__name__,
        types,
        {name: getattr(defaults, name) for name in types},
        options_type,
    )

    def arguments(options: Options) -> Arguments:
        value = options_type(**msgspec.structs.asdict(options))
        if parameter.kind is parameter.KEYWORD_ONLY:
            return (), {parameter.name: value}
        return (value,), {}

    return Signature(struct, arguments)


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


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation, evaluated if it is text; Any if that fails."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function_of(function), "__globals__", {}))
    except Exception:  # an annotation may be any text, such as a name for type checkers alone
        return Any


def _types(options_type: Any) -> dict[str, Any]:
    """The fields of a struct or a dataclass with their types."""
    try:
        types = get_type_hints(options_type, include_extras=True)
    except Exception:  # a name that only type checkers import; the option then takes any value
        types = {}
    if dataclasses.is_dataclass(options_type):
        names = [field.name for field in dataclasses.fields(options_type)]
    else:
        names = options_type.__struct_fields__
    return {name: types.get(name, Any) for name in names}


def _defaults(options_type: Any) -> Any:
    """A struct or dataclass with all its defaults. Raises ValueError if an option has none."""
    try:
        return options_type()
    except TypeError as error:
        raise ValueError(
            f"every option of {options_type.__name__} needs a default: {error}"
        ) from error


def _type(annotation: Any, default: Any) -> Any:
    """The type of an option that is a parameter: its annotation, or its default's type."""
    if annotation is not inspect.Parameter.empty:
        return annotation
    return type(default) if isinstance(default, bool | float | str) else Any


def _struct(
    name: str, types: dict[str, Any], defaults: dict[str, Any], options_type: Any = Options
) -> type[Options]:
    """A struct type with options of these names, types and defaults, checked as `options_type`
    checks them."""
    fields = [(option, types[option], default) for option, default in defaults.items()]
    base = options_type
    checks = None
    if not issubclass(options_type, Options):
        base = Options
        # Making the dataclass runs its __post_init__, where a dataclass checks its fields.
        checks = {"check": lambda options: options_type(**msgspec.structs.asdict(options))}
    struct: Any = msgspec.defstruct(
        name, fields, bases=(base,), namespace=checks, frozen=True, kw_only=True
    )
    return struct
