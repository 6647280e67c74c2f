"""The options of FeF-DLLM, and the rules between them."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from model_wrappers.options import EndOptions, Positive, Share

# Options that save calls or rows and leave the output law as it is.
SAVINGS = ("skip_root_row", "reuse_drafts", "adaptive_window")
# Options of two streams alone; with verify="full" they must be as here.
TWO_STREAM_DEFAULTS = {"anchor": None, "refresh_below": None, "order": "left-to-right"}


class FeFOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `fef`.

    `logits_eos_inf` takes EOS out of draft and target; `confidence_eos_eot_inf` takes EOS and EoT
    out of the confidence that ranks positions for re-masking; `stop_at_eos` acts in the last step,
    once every position before an EOS is resolved.

    Attributes:
        steps: diffusion steps; each block finishes all of them before the next block starts.
        window: the most drafts that are verified at once (k).
        speculative: False decodes one position at a time from its target, without drafts.
        acceptance: "token" accepts each draft by itself, as the paper does; "block" accepts the
            drafts of a window jointly (`sampling.block_accept`): the same output law, and in
            expectation never fewer accepted drafts.
        draft: the backbone of the draft probs (None: the target's).
        remask_fraction: share of a block's predicted positions that is re-corrupted after a step,
            the least confident ones.
        remask_below: re-corrupt only those of these with a confidence below this (None: all; not in
            the paper).
        confidence_scope: "all" ranks every position by its latest confidence, "pass" only those
            committed in the last pass (Algorithm 2 read literally).
        kernel: the forward kernel of re-corruption, at its last time: "absorbing" masks positions;
            "uniform" replaces them by random tokens, with which the response also begins.
        verify: "full" computes the paper's targets; "two-stream" computes other ones, for which a
            draft costs two tokens instead of a row. It needs a backbone with `extend`.
        anchor: (two streams) number of unresolved positions that share a context pass; windows do
            not cross it (None: all positions of the step).
        refresh_below: (two streams) a position whose best token has less probability than this gets
            a new context pass, and with it the paper's target (None: never).
        order: (two streams) "confidence" resolves the positions of a segment in descending
            confidence.
        skip_root_row: if a window's first rho is known to be pi itself, the first draft is accepted
            for certain, and its row is not run.
        reuse_drafts: draft probs come from the last verification, from the row in which just the
            accepted drafts are filled in; after re-masking, from the step before.
        adaptive_window: the number of verified drafts is a function of rho, fixed before the drafts
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
        """Check that the options go together.

        Raises:
            ValueError: they do not.
        """
        for name, default in TWO_STREAM_DEFAULTS.items():
            value = getattr(self, name)
            if self.verify == "full" and value != default:
                raise ValueError(f"{name}={value!r} needs verify='two-stream', not 'full'")
        if self.verify == "two-stream" and self.reuse_drafts:
            raise ValueError(
                "reuse_drafts needs verify='full', not 'two-stream', whose draft passes cost little"
            )
        if not self.speculative and any(getattr(self, name) for name in SAVINGS):
            raise ValueError(f"{', '.join(SAVINGS)} need speculative=True: they save drafts")
