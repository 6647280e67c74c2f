"""FreeDave: lossless decoding by free draft and verification, at temperature 0 (Wu and Zhang, arXiv
2510.00294).

A state is the sequence after a step of LLaDA at one token a step. The logits of the present state
give the next state for certain, and guesses at the states after it: those with the 2, 3, ... most
confident positions filled in. One batch runs these states. A guess is right if the state before it
chooses exactly the position and token that the guess adds. The last right state's logits give the
next guesses, so the tokens are LLaDA's. Only the first step of a block needs a forward of its own.
Shapes: L length, N masked positions, K guessed states, V vocabulary.
"""

from functools import partial

from model_wrappers.decoders.llada import Choice
from model_wrappers.decoders.ssd import choices_of, filled, ranked, rejected, verified
from model_wrappers.options import EndOptions, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.trace import CommitKind, Window


class FreeDaveOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `freedave`.

    Attributes:
        draft_steps: the most states that one batch runs.
    """

    draft_steps: Positive = 4


def decode_freedave(request: Request, options: FreeDaveOptions) -> None:
    """Fill the response; the guesses of each batch are recorded as a window, without its first
    state, which is certain."""
    backbone = request.backbone
    x_1L = request.x_1L
    choice = Choice(request, options)
    rounds = 0
    for block in request.blocks():
        end = block.stop
        steps = len(request.masked(block.start, end))  # LLaDA's, one a mask
        position_N = request.masked(0, end)
        if steps:
            logits_1NV = backbone.logits(x_1L, positions=position_N)
            (chosen,) = choices_of(logits_1NV, choice)
            chain = ranked(x_1L[0], position_N, chosen, end, request.mask_id)
        while steps:
            links = chain[: min(options.draft_steps, steps)]
            # A state that fills the block has nothing to choose, so it is left out of the batch.
            states_KL = filled(x_1L, links)[1 : len(links) + (len(links) < steps)]
            drafts = links[1:]
            accepted = 0
            if len(states_KL):
                logits_KNV = backbone.logits(states_KL, positions=position_N)
                ends = [end] * len(states_KL)
                choices = choices_of(logits_KNV, choice)
                accepted, chain = verified(
                    states_KL, drafts, position_N, choices, ends, request.mask_id
                )
            resolved = links[: accepted + 1]
            positions, tokens, confidences = map(list, zip(*resolved, strict=True))
            # The first state is LLaDA's own step; only those after it were drafts.
            kinds: list[CommitKind] = [
                "accepted" if number else "unmasked" for number in range(len(resolved))
            ]
            request.commit(positions, tokens, confidences, kinds)
            if drafts:
                if accepted < len(drafts):
                    request.reject(
                        partial(rejected, drafts[accepted:], position_N, logits_KNV[accepted:])
                    )
                start = links[0].position - request.start
                window = Window(0, rounds, start, len(drafts), accepted, len(resolved))
                request.record(window, [link.position for link in links])
                rounds += 1
            if options.stop_at_eos and fill_after_eos(request):
                return
            steps -= len(resolved)
            position_N = request.masked(0, end)
        request.finish(block)
