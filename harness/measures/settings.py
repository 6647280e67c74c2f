"""What a method's settings on a suite differ in from LLaDA's there: lengths, and what is done about the end.

Rows of one table may differ in more than the decoder: in what it was published with, or in what it cannot do.
"""

from collections.abc import Iterator

from msgspec import UNSET

from harness.measures.table import REFERENCE
from harness.records.schema import Setting
from harness.records.store import Run

END_OPTIONS = ("logits_eos_inf", "confidence_eos_eot_inf", "stop_at_eos")  # of all methods alike, where they have them
COMMIT = 7  # digits of a commit in a note


def against_reference(run: Run) -> dict[tuple[str, str], str]:
    """A note for every method and suite whose settings are not those of the run's LLaDA; "" where they are.

    And for those whose block model attends in other blocks than its own.
    """
    reference = run.config.methods.get(REFERENCE)
    usual = {} if reference is None else reference.suites
    return {
        (name, suite): ", ".join(_differences(own, usual.get(suite)))
        for name, method in run.config.methods.items()
        for suite, own in method.suites.items()
    }


def _differences(own: Setting, reference: Setting | None) -> Iterator[str]:
    if own.attends is not UNSET:
        yield f"the model attends in blocks of {own.block_length}, not in its own of {own.attends}"
    if reference is None:
        return
    found = []
    if None not in (own.gen_length, reference.gen_length) and own.gen_length != reference.gen_length:
        found.append(f"responses of {own.gen_length} tokens, LLaDA's of {reference.gen_length}")
    blocks = [_block(setting) for setting in (own, reference)]
    if None not in blocks and blocks[0] != blocks[1]:
        found.append(f"{blocks[0]}, LLaDA's {blocks[1]}")
    if found and own.published is not UNSET:
        found.append(f"as published ({_short(own.published)})")
    yield from found
    for option in END_OPTIONS:
        here, there = (bool(setting.options.get(option)) for setting in (own, reference))
        if here != there:
            yield f"{'with' if here else 'without'} {option}"


def _block(setting: Setting) -> str | None:
    """The blocks of a response in words; None where the record does not say."""
    if setting.block_length is None:
        return None
    return "full sequence" if setting.block_length == setting.gen_length else f"blocks of {setting.block_length}"


def _short(source: str) -> str:
    """A source with the beginning of its commit: "owner/name@0123456"."""
    repository, _, rest = source.partition("@")
    commit = rest.partition(" ")[0]
    return f"{repository}@{commit[:COMMIT]}" if commit else source
