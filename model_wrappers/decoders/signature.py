"""How the function of a decoder takes its options: a struct, a dataclass, keywords, or not at
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
    """options: the struct that checks the options. arguments: what the function is called with for
    them."""

    options: type[Options]
    arguments: Callable[[Options], Arguments]


def signature_of(function: Callable[..., Any]) -> Signature:
    """What a decoder's function takes beside the request.

    Its second parameter may be annotated with a struct derived from Options, or with a dataclass.
    Other parameters with defaults are options by themselves, unless the second one takes them all.

    Raises:
        ValueError: for a function that is no decoder, and for options without a default.
    """
    name = name_of_function(function)
    try:
        _, *parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # it has no signature, or no parameter
        raise ValueError(f"{name} is no decoder: it must take a request") from error
    kinds = [_evaluated(parameter.annotation, function) for parameter in parameters]
    if parameters and _is_options(kinds[0]):
        return _by_struct(parameters[0], kinds[0])
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in (0, 1)
    ]
    if not required:
        types: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for parameter, kind in zip(parameters, kinds, strict=True):
            if parameter.default is not parameter.empty:
                types[parameter.name] = _type(kind, parameter.default)
                defaults[parameter.name] = parameter.default
        struct = _struct(f"{name}_options", types, defaults)
        return Signature(struct, lambda options: ((), msgspec.structs.asdict(options)))
    if required == parameters[:1] and kinds[0] is inspect.Parameter.empty:
        return Signature(Options, lambda options: ((options,), {}))
    raise ValueError(
        f"{name} is no decoder: it must take (request, options), the options annotated with a"
        " dataclass or a struct derived from model_wrappers.options.Options, or options with"
        " defaults by name"
    )


def _by_struct(parameter: inspect.Parameter, kind: Any) -> Signature:
    """Options that are one argument, of a struct or a dataclass."""
    is_bound = parameter.default not in (None, parameter.empty)
    defaults = parameter.default if is_bound else _defaults(kind)
    if parameter.default is parameter.empty and issubclass(kind, Options):
        return Signature(kind, lambda options: ((options,), {}))
    types = _types(kind)
    struct = _struct(kind.__name__, types, {name: getattr(defaults, name) for name in types}, kind)

    def arguments(options: Options) -> Arguments:
        value = kind(**msgspec.structs.asdict(options))
        if parameter.kind is parameter.KEYWORD_ONLY:
            return (), {parameter.name: value}
        return (value,), {}

    return Signature(struct, arguments)


def name_of_function(function: Any) -> str:
    """What messages and records call a function, a lambda, a partial or an object that can be
    called."""
    inner = function_of(function)
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def function_of(function: Any) -> Any:
    """The function that a partial, or a decorated function, is of."""
    while isinstance(function, partial):
        function = function.func
    return inspect.unwrap(function)


def _is_options(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Options) or dataclasses.is_dataclass(kind))


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation; of one that is text what it names, where that is known."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function_of(function), "__globals__", {}))
    except Exception:  # whatever stands there
        return Any


def _types(kind: Any) -> dict[str, Any]:
    """The options of a struct or a dataclass, and their types."""
    try:
        types = get_type_hints(kind, include_extras=True)
    except Exception:  # names that are not known here
        types = {}
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = kind.__struct_fields__
    return {name: types.get(name, Any) for name in names}


def _defaults(kind: Any) -> Any:
    """A struct or dataclass of defaults. Raises ValueError where an option has none."""
    try:
        return kind()
    except TypeError as error:
        raise ValueError(f"every option of {kind.__name__} needs a default: {error}") from error


def _type(annotation: Any, default: Any) -> Any:
    """The type of an option that is a parameter."""
    if annotation is not inspect.Parameter.empty:
        return annotation
    return type(default) if isinstance(default, bool | float | str) else Any


def _struct(
    name: str, types: dict[str, Any], defaults: dict[str, Any], kind: Any = Options
) -> type[Options]:
    """Options of these names, types and defaults, checked as `kind` checks them."""
    fields = [(option, types[option], default) for option, default in defaults.items()]
    base = kind
    checks = None
    if not issubclass(kind, Options):
        base = Options
        checks = {"check": lambda options: kind(**msgspec.structs.asdict(options))}
    made: Any = msgspec.defstruct(
        name, fields, bases=(base,), namespace=checks, frozen=True, kw_only=True
    )
    return made
