"""The options of FeF-DLLM, and the rules between them."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from model_wrappers.options import EndOptions, Positive, Share

SAVINGS = ("skip_root_row", "reuse_drafts", "adaptive_window")
OF_TWO_STREAMS = {"anchor": None, "refresh_below": None, "order": "left-to-right"}


class FeFOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `fef`.

    `logits_eos_inf` takes EOS out of draft and target; `confidence_eos_eot_inf` takes EOS and EoT
    out of the confidence that ranks positions for re-masking; `stop_at_eos` acts in the last step,
    once all before an EOS is resolved.

    Attributes:
        steps: diffusion steps; all of a block's finish before the next block starts.
        window: most drafts that are verified at once (k).
        speculative: False decodes one position at a time from its target.
        acceptance: "token" accepts each draft by itself, as the paper does; "block" those of a
            window jointly (`sampling.block_accept`), at the same law and never fewer.
        draft: the backbone of the draft probs; None is the target's.
        remask_fraction: share of a block's predicted positions that is re-corrupted after a step,
            the least confident first.
        remask_below: of these, only those less confident than this (None: all; not in the paper).
        confidence_scope: "all" ranks every position by its latest confidence, "pass" only those
            committed in the last pass (Algorithm 2 read literally).
        kernel: the forward kernel of re-corruption, at its last time: "absorbing" masks positions,
            "uniform" draws them anew, and a response of masks then starts from such draws.
        verify: "full" gives the paper's target; "two-stream" another one, at the cost of tokens
            instead of rows. The backbone must then have `extend`.
        anchor: of two streams, unresolved positions per context pass, which windows do not cross
            (None: all of the step's).
        refresh_below: of two streams, a position with a best token of less probability gets a new
            context pass, which gives it the paper's target (None: never).
        order: of two streams, "confidence" resolves a segment from its most confident position on.
        skip_root_row: where rho is pi itself, the first draft is accepted for certain, and its row
            is not run.
        reuse_drafts: draft probs come from the row of a verification in which just the accepted
            drafts are filled in or, after re-masking, from the step before.
        adaptive_window: how many drafts are verified is a function of rho, fixed before the drafts
            are drawn.
    """

    steps: Annotated[int, Meta(ge=1, le=1000)] = 2
    window: Positive = 16
    speculative: bool = True
    acceptance: Literal["token", "block"] = "token"
    draft: Any = None
    remask_fraction: Share = 0.5
    remask_below: Share | None = None
    confidence_scope: Literal["all", "pass"] = "all"
    kernel: Literal["absorbing", "uniform"] = "absorbing"
    verify: Literal["full", "two-stream"] = "full"
    anchor: Positive | None = None
    refresh_below: Share | None = None
    order: Literal["left-to-right", "confidence"] = "left-to-right"
    skip_root_row: bool = False
    reuse_drafts: bool = False
    adaptive_window: bool = False

    def check(self) -> None:
        """Rules between fields.

        Raises:
            ValueError: options that do not go together.
        """
        for name, default in OF_TWO_STREAMS.items():
            value = getattr(self, name)
            if self.verify == "full" and value != default:
                raise ValueError(f"{name}={value!r} needs verify='two-stream', not 'full'")
        if self.verify == "two-stream" and self.reuse_drafts:
            raise ValueError(
                "reuse_drafts needs verify='full', not 'two-stream', whose draft passes cost little"
            )
        if not self.speculative and any(getattr(self, name) for name in SAVINGS):
            raise ValueError(f"{', '.join(SAVINGS)} need speculative=True: they save drafts")
