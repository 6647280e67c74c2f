"""The options of FeF-DLLM."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from model_wrappers.options import EndOptions, Positive, Share


class FeFOptions(EndOptions, frozen=True, kw_only=True):
    """steps: diffusion steps; all of a block's finish before the next block starts. window: most drafts verified at
    once. speculative: False decodes one position at a time from its target. draft: the backbone of the draft probs
    (None: the target's own). remask_fraction: share of a block's predicted positions that is re-corrupted after a step,
    the least confident first. remask_below: of these, only those less confident than this (None: all; not in the
    paper). confidence_scope: "all" ranks every position by its latest confidence, "pass" only those committed in the
    last pass (Algorithm 2 read literally). kernel: the forward kernel that positions are re-corrupted through, at its
    last time: "absorbing" masks them, "uniform" draws them anew, and a response of masks then starts from such draws.

    verify: "full" gives the paper's target; "two-stream" another one, at the cost of tokens instead of rows (see
    two_stream.py; the backbone must have `extend`). anchor: with "two-stream", unresolved positions
    per context pass (None: all of the step's); windows do not cross its grid. refresh_below: with "two-stream", a
    position whose best token has less than this probability gets a context pass of its own, which gives it the paper's
    target, and so begins a new segment (None: never). order: in which a segment is resolved; with "two-stream" also the
    most confident position first, as its context pass has it. skip_root_row, reuse_drafts, adaptive_window: exact
    savings (see drafts.py).

    The official sampler's options: logits_eos_inf takes EOS out of draft and target; confidence_eos_eot_inf takes EOS
    and EoT out of the confidence that ranks positions for re-masking. stop_at_eos: in the last step, once all before an
    EOS is resolved.
    """

    steps: Annotated[int, Meta(ge=1, le=1000)] = 2
    window: Positive = 16
    speculative: bool = True
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
        full, savings = self.verify == "full", ("skip_root_row", "reuse_drafts", "adaptive_window")
        two_stream = {"anchor": None, "refresh_below": None, "order": "left-to-right"}
        alone = [name for name, usual in two_stream.items() if getattr(self, name) != usual]
        wrong = None
        if full and alone:
            wrong = f"{alone[0]}={getattr(self, alone[0])!r} needs verify='two-stream', not 'full'"
        elif not full and self.reuse_drafts:
            wrong = f"reuse_drafts needs verify='full', not {self.verify!r}, whose draft passes cost little"
        elif not self.speculative and any(getattr(self, name) for name in savings):
            wrong = f"{', '.join(savings)} need speculative=True: they save drafts"
        if wrong is not None:
            raise ValueError(wrong)
