"""FreeDave: lossless decoding by free draft and verification, at temperature 0 (Wu and Zhang, arXiv
2510.00294).

The logits of the sequence as it is give the next state of LLaDA's one-token-a-step decoding for
certain, and guesses at the states after it: the 2, 3, .. most confident positions filled in. One
batch runs the guesses; each is right if the one before it chooses just what it adds. The last right
state's logits are the next guesses, so the tokens are LLaDA's. A block begins with a forward.
Shapes: L length, N masked positions, K guessed states, V vocabulary.
"""

from functools import partial

import torch

from model_wrappers.decoders.llada import Choice
from model_wrappers.decoders.ssd import Link, ranked, rejected
from model_wrappers.options import EndOptions, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.trace import How, Window


class FreeDaveOptions(EndOptions, frozen=True, kw_only=True):
    """draft_steps: most states that one batch runs."""

    draft_steps: Positive = 4


def decode_freedave(request: Request, options: FreeDaveOptions) -> None:
    """Fill the response; a window is the guesses of one batch, without the first, which is
    certain."""
    backbone = request.backbone
    x_1L = request.x_1L
    choice = Choice(request, options)
    rounds = 0

    def masked(end: int) -> torch.Tensor:
        return (x_1L[0, :end] == request.mask_id).nonzero()[:, 0]

    for block in request.blocks():
        end = block.stop
        steps = int((x_1L[0, block.start : end] == request.mask_id).sum())  # that LLaDA would make
        position_N = masked(end)
        if steps:
            chain = ranked(
                x_1L[0], position_N, backbone.logits(x_1L, positions=position_N)[0], end, choice
            )
        while steps:
            links = chain[: min(options.draft_steps, steps)]
            # A state that fills the block chooses nothing: it need not run.
            states = len(links) - (len(links) == steps)
            accepted = 0
            chain = list[Link]()
            if states:
                states_KL = x_1L.repeat(states, 1)
                for k, link in enumerate(links[:states]):
                    states_KL[k:, link.position] = link.token
                logits_KNV = backbone.logits(states_KL, positions=position_N)
                while accepted < states:
                    chain = ranked(
                        states_KL[accepted], position_N, logits_KNV[accepted], end, choice
                    )
                    if [link[:2] for link in chain[:1]] != [
                        link[:2] for link in links[accepted + 1 : accepted + 2]
                    ]:
                        break
                    accepted += 1
            resolved = links[: accepted + 1]
            positions, tokens, confidences = map(list, zip(*resolved, strict=True))
            how: list[How] = [
                "accepted" if number else "unmasked" for number in range(len(resolved))
            ]
            request.commit(positions, tokens, confidences, how)
            if len(links) > 1:
                if len(resolved) < len(links):
                    rest = links[len(resolved) :]
                    request.reject(
                        partial(
                            rejected, rest, position_N, logits_KNV[accepted : accepted + len(rest)]
                        )
                    )
                window = (
                    0,
                    rounds,
                    links[0].position - request.start,
                    len(links) - 1,
                    accepted,
                    len(resolved),
                )
                request.record(Window(*window), [link.position for link in links])
                rounds += 1
            if options.stop_at_eos and fill_after_eos(request):
                return
            steps -= len(resolved)
            position_N = masked(end)
        request.finish(block)
