"""Decoders from outside and their options: registered or given as functions, checked, and what they
must not do."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from transformers import Qwen2ForCausalLM

from model_wrappers import METHODS, Backbone, decode, register, register_family
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.decoders import RESERVED_NAMES, Decoder, add_decoder, decoder_named
from model_wrappers.options import AboveZero, NotNegative, Options, Positive, Share, convert_options
from model_wrappers.request import Request


class Fill(Options):
    """token: what every mask becomes."""

    token: Positive = 7


def fill(request: Request, options: Fill) -> None:
    """Fill the response with one token."""
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.commit(masked, options.token, None, "filled")


def half(request: Request, options: Fill) -> None:
    """Fill the first half of the response."""
    first = range(request.start, request.start + request.length // 2)
    request.commit(list(first), options.token, None, "filled")


def over_the_prompt(request: Request, options: Fill) -> None:
    """Fill everything, the prompt as well."""
    request.x_1L[:] = options.token


def over_what_was_given(request: Request, options: Fill) -> None:
    """Fill the response, what was given as well."""
    request.x_1L[0, request.start :] = options.token


def outside(request: Request, options: Fill) -> None:
    """Fill the response with an id that is none."""
    fill(request, Fill(token=10_000))


def test_a_function_decodes_with_its_options(tiny: Backbone, prompt: torch.Tensor) -> None:
    out = decode(tiny, prompt, method=fill, gen_length=4, token=9)
    assert out.tokens.tolist() == [9] * 4 and out.trace.forwards == 0
    assert (
        decode(tiny, prompt, method=Decoder(fill, "fill"), gen_length=4).tokens.tolist() == [7] * 4
    )


def test_a_registered_function_decodes_by_its_name(
    registries: None, tiny: Backbone, prompt: torch.Tensor
) -> None:
    assert register("fill-it", label="Fill", greedy_only=True)(fill) is fill
    assert METHODS["fill-it"].label == "Fill" and METHODS["fill-it"].takes("token")
    assert decode(tiny, prompt, "fill-it", gen_length=4).tokens.tolist() == [7] * 4
    with pytest.raises(ValueError, match="fill-it is defined at temperature 0"):
        decode(tiny, prompt, "fill-it", gen_length=4, temperature=1.0)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (half, "decoder half left 4 of 8 positions masked: it must fill all of them"),
        (
            over_the_prompt,
            "decoder over_the_prompt changed position 0 of .* from position 5 on",
        ),
        (outside, "decoder outside put id 10000 into the response: the vocabulary is 0 to 39"),
    ],
)
def test_a_decoder_that_breaks_a_rule_is_named_with_it(
    tiny: Backbone, prompt: torch.Tensor, function: Callable[..., None], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        decode(tiny, prompt, method=function, gen_length=8)


def test_what_was_given_must_stay(tiny: Backbone, prompt: torch.Tensor) -> None:
    given = torch.tensor([1, tiny.mask_id, 3, tiny.mask_id])
    assert decode(tiny, prompt, method=fill, gen_length=4, given=given).tokens.tolist() == [
        1,
        7,
        3,
        7,
    ]
    with pytest.raises(
        ValueError, match="changed position 5 of the sequence: it may fill masks alone"
    ):
        decode(tiny, prompt, method=over_what_was_given, gen_length=4, given=given)


def test_masks_may_stay_where_that_is_said(
    registries: None, tiny: Backbone, prompt: torch.Tensor
) -> None:
    register("half", may_leave_masks=True)(half)
    assert int((decode(tiny, prompt, "half", gen_length=8).tokens == tiny.mask_id).sum()) == 4


def other_options(request: Request, options: dict[str, Any]) -> None:
    """Not a decoder: its options are no struct."""


class Needed(Options, kw_only=True):
    """An option without a default."""

    needed: int


def needs(request: Request, options: Needed) -> None:
    """Not a decoder: an option has no default."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (other_options, "a dataclass or a struct derived from model_wrappers.options.Options"),
        (needs, "every option of Needed needs a default"),
        (lambda: None, "lambda is no decoder: it must take a request"),
        (
            lambda request, options, more: None,
            r"lambda is no decoder: it must take \(request, options\)",
        ),
    ],
)
def test_what_is_no_decoder_is_not_registered(
    registries: None, function: Callable[..., None], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        register("mine")(function)
    assert "mine" not in METHODS


@dataclass
class Token:
    """A dataclass of options, which checks a value itself."""

    token: Positive = 7
    others: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.token == 13:
            raise ValueError("token=13 brings bad luck")


def by_dataclass(request: Request, options: Token) -> None:
    fill(request, Fill(token=options.token))


def by_text(request: "Request", options: "Token") -> None:
    by_dataclass(request, options)


def by_name(request: Request, token: int = 7, *, unused: float = 0.5) -> None:
    fill(request, Fill(token=token))


def without_types(request, token=7):  # type: ignore[no-untyped-def]
    fill(request, Fill(token=token))


def with_a_third(request: Request, options: Fill, verbose: bool = False) -> None:
    fill(request, options)


def by_position(request: Request, options: Token, /) -> None:
    by_dataclass(request, options)


def logged(decoder: Callable[..., None]) -> Callable[..., None]:
    """A decorator whose parameters have names of their own."""

    @wraps(decoder)
    def inner(asked: Request, *values: Any) -> None:
        decoder(asked, *values)

    return inner


class Callable7:
    """An object that can be called."""

    def __call__(self, request: Request, token: Positive = 7) -> None:
        fill(request, Fill(token=token))


def closure(token: int) -> Callable[..., None]:
    def filled(request: Request, options: Fill) -> None:
        fill(request, Fill(token=token))

    return filled


@pytest.mark.parametrize(
    "function",
    [
        *(
            by_dataclass,
            by_text,
            by_name,
            without_types,
            with_a_third,
            by_position,
            logged(by_dataclass),
            Callable7(),
            partial(by_name, unused=1.0),
        ),
        lambda request, token=7: fill(request, Fill(token=token)),
    ],
)
def test_options_may_be_a_dataclass_or_named(
    function: Any, tiny: Backbone, prompt: torch.Tensor
) -> None:
    assert decode(tiny, prompt, function, gen_length=2).tokens.tolist() == [7, 7]
    assert decode(tiny, prompt, (function, {"token": 9}), gen_length=2).tokens.tolist() == [9, 9]
    with pytest.raises(ValueError, match=r"unknown option 'tokne' for [\w]+; did you mean token\?"):
        decode(tiny, prompt, function, gen_length=2, tokne=9)


@pytest.mark.parametrize(
    "function",
    [
        lambda request: fill(request, Fill(token=9)),
        lambda request, options: fill(request, Fill(token=9)),
        *(partial(fill, options=Fill(token=9)), partial(by_name, token=9), closure(9)),
        partial(by_dataclass, options=Token(9)),
    ],
)
def test_options_may_be_fixed_or_none(function: Any, tiny: Backbone, prompt: torch.Tensor) -> None:
    assert decode(tiny, prompt, function, gen_length=2).tokens.tolist() == [9, 9]
    assert decoder_named(function).name in ("lambda", "fill", "by_name", "filled", "by_dataclass")


def test_values_of_a_dataclass_are_checked(tiny: Backbone, prompt: torch.Tensor) -> None:
    for token, says in (
        (0, "token=0 for by_dataclass must be a whole number of at least 1"),
        (13, "bad luck"),
    ):
        with pytest.raises(ValueError, match=says):
            decode(tiny, prompt, by_dataclass, gen_length=2, token=token)


@pytest.mark.parametrize("name", ["", "a b", "a,b"])
def test_names_that_a_command_line_would_cut_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="name is letters"):
        register(name)


def test_a_name_that_is_taken_is_refused(registries: None) -> None:
    register("fill-it")(fill)
    for name in ("llada", "fill-it"):
        with pytest.raises(ValueError, match=f"a decoder '{name}' is there already"):
            register(name)(half)
    with pytest.raises(ValueError, match="there already"):
        add_decoder("llada", Decoder(partial(fill), "fill"))


def test_a_function_of_the_same_module_and_name_replaces_the_earlier_one(registries: None) -> None:
    code = compile("def fill(request, options: Fill): pass", "mine.py", "exec")
    versions = []
    for _ in range(2):
        scope: dict[str, Any] = {"Fill": Fill}
        exec(code, scope)
        versions.append(register("again")(scope["fill"]))
    assert METHODS["again"].source is versions[1]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "llada"}, "'llada'"),
    ],
)
def test_a_family_whose_checkpoints_are_anothers_is_refused(
    changes: dict[str, Any], named: str
) -> None:
    own = replace(FAMILIES["Dream"], model_type="own", also=(), architectures=())
    with pytest.raises(ValueError, match=f"a family of {named} is there already"):
        register_family(replace(own, **changes))
    assert "own" not in FAMILIES


def test_a_family_whose_model_has_no_infer_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="the model of the family 'own' has no `infer`; derive Qwen2ForCausalLM from",
    ):
        register_family(
            replace(FAMILIES["Dream"], model_type="own", also=(), model=Qwen2ForCausalLM)
        )


def test_an_option_that_decode_takes_itself_is_refused() -> None:
    own = {
        name
        for name, each in signature(decode).parameters.items()
        if each.kind is not each.VAR_KEYWORD
    }
    assert own | {"draft", "role"} == RESERVED_NAMES

    class Taken(Options):
        temperature: float = 1.0

    def decoder(request: Request, options: Taken) -> None: ...

    decoder.__annotations__["options"] = Taken
    with pytest.raises(ValueError, match="mine: decode itself takes temperature"):
        register("mine")(decoder)
    assert "mine" not in METHODS


# Options: every name, type and range is checked by one conversion
class Sample(Options, frozen=True, kw_only=True):
    """One field of each kind."""

    count: Positive | None = None
    share: Share = 0.5
    weight: NotNegative = 0.0
    rate: AboveZero = 1.0
    whole: int = 0
    text: str = ""
    switch: bool = False
    kind: Literal["left", "right"] = "left"
    file: Path | None = None

    def check(self) -> None:
        if self.switch and self.kind == "right":
            raise ValueError("switch=True is for kind='left'")


def test_values_are_converted() -> None:
    made = convert_options(
        Sample, {"file": "a/b.json", "share": 1, "kind": "right", "count": 3}, "sample"
    )
    assert (made.file, made.share, made.kind, made.count) == (Path("a/b.json"), 1.0, "right", 3)
    assert convert_options(Sample, {"file": Path("c")}, "sample").file == Path("c")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "unknown option 'cuont' for sample; did you mean count"),
        ({"q": 1}, "valid: .*file$"),
        ({"count": 0}, "option count=0 for sample must be a whole number of at least 1 or None"),
        ({"share": 1.5}, r"option share=1.5 for sample must be a finite number in \[0, 1\]"),
        ({"weight": -1}, r"option weight=-1 for sample must be a finite number in \[0, 1e\+30\]"),
        ({"rate": 0}, "option rate=0 for sample must be a finite number above 0"),
        ({"kind": "up"}, "option kind='up' for sample must be 'left' or 'right'"),
        ({"switch": True, "kind": "right"}, "sample: switch=True is for kind='left'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        convert_options(Sample, values, "sample")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_every_decoder_has_options_with_defaults(method: str) -> None:
    decoder = decoder_named(method)
    assert issubclass(decoder.options, Options) and decoder.options() == convert_options(
        decoder.options, {}, method
    )
    assert decoder.takes("stop_at_eos") != decoder.causal  # an autoregressive one always does
    assert not decoder.takes("unheard_of")
