"""How the function of a decoder takes its options: a struct, a dataclass, keywords, or not at all."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

import msgspec

from model_wrappers.options import Options

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # after the request, by position and by name


@dataclass(frozen=True)
class Signature:
    """options: the struct that checks the options. arguments: what the function is called with for them."""

    options: type[Options]
    arguments: Callable[[Options], Arguments]


def signature_of(function: Callable[..., Any]) -> Signature:
    """What a decoder's function takes beside the request. Raises ValueError for a function that is no decoder.

    Its second parameter may be annotated with a struct derived from Options, or with a dataclass. Other parameters with
    defaults are options by themselves, unless the second one takes them all.
    """
    try:
        _, *parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # it has no signature, or no parameter
        raise ValueError(f"{name_of_function(function)} is no decoder: it must take a request") from error
    if not parameters:
        return Signature(Options, lambda options: ((), {}))
    second = parameters[0]
    kind = _evaluated(second.annotation, function)
    if isinstance(kind, type) and issubclass(kind, Options):
        return Signature(_with_defaults(kind, second.default), partial(_placed, second))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        struct = _with_defaults(_struct_of(kind), second.default)
        return Signature(struct, lambda options: _placed(second, kind(**msgspec.structs.asdict(options))))
    named = [each for each in parameters if each.default is not each.empty]
    required = [each for each in parameters if each.default is each.empty and each.kind in POSITIONAL]
    if not required:
        struct = _struct(f"{name_of_function(function)}_options", {each.name: _field(each, function) for each in named})
        return Signature(struct, lambda options: ((), msgspec.structs.asdict(options)))
    if required == [second] and kind is second.empty:
        return Signature(Options, partial(_placed, second))
    raise ValueError(
        f"{name_of_function(function)} is no decoder: it must take (request, options), the options annotated with a "
        "dataclass or a struct derived from model_wrappers.options.Options, or options with defaults by name"
    )


def name_of_function(function: Any) -> str:
    """What messages and records call a function, a lambda, a partial or an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")


def _placed(parameter: inspect.Parameter, options: Any) -> Arguments:
    """The options as the argument of a parameter."""
    if parameter.kind in POSITIONAL:
        return (options,), {}
    return (), {parameter.name: options}


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation; of one that is text what it names, where that is known."""
    if not isinstance(annotation, str):
        return annotation
    while isinstance(function, partial):
        function = function.func
    inner = inspect.unwrap(function)
    try:
        closed = inspect.getclosurevars(inner).nonlocals
        return eval(annotation, getattr(inner, "__globals__", {}), dict(closed))
    except Exception:  # whatever stands there
        return Any


def _with_defaults(kind: type[Options], given: Any) -> type[Options]:
    """Options with the values of an instance as their defaults, where a partial or a default gives one."""
    if given is inspect.Parameter.empty or given is None:
        return kind
    types = get_type_hints(kind, include_extras=True)
    return _struct(kind.__name__, {name: (types[name], getattr(given, name)) for name in kind.__struct_fields__}, kind)


def _struct_of(kind: type) -> type[Options]:
    """Options with the fields of a dataclass, which checks their values itself too."""
    try:
        types = get_type_hints(kind, include_extras=True)
    except Exception:  # names that are not known here
        types = {}
    fields: dict[str, tuple[Any, Any]] = {}
    for each in dataclasses.fields(kind):
        default = each.default
        if each.default_factory is not dataclasses.MISSING:
            default = msgspec.field(default_factory=each.default_factory)
        if default is dataclasses.MISSING:
            raise ValueError(f"every option of {kind.__name__} needs a default: {each.name} has none")
        fields[each.name] = (types.get(each.name, Any), default)

    def check(options: Options) -> None:
        kind(**msgspec.structs.asdict(options))

    return _struct(kind.__name__, fields, namespace={"check": check})


def _field(parameter: inspect.Parameter, function: Callable[..., Any]) -> tuple[Any, Any]:
    """Type and default of an option that is a parameter."""
    kind = _evaluated(parameter.annotation, function)
    if kind is parameter.empty:
        kind = type(parameter.default) if isinstance(parameter.default, bool | float | str) else Any
    return kind, parameter.default


def _struct(
    name: str,
    fields: Mapping[str, tuple[Any, Any]],
    base: type[Options] = Options,
    namespace: dict[str, Any] | None = None,
) -> type[Options]:
    """Options of these fields, each with its type and default."""
    listed = [(field, kind, default) for field, (kind, default) in fields.items()]
    made: Any = msgspec.defstruct(name, listed, bases=(base,), namespace=namespace, frozen=True, kw_only=True)
    return made
