"""How often every token comes in training responses: the baseline of PC-Sampler.

    python -m harness.methods.frequencies --model nano --out model_wrappers/nano/frequencies.json
    python -m harness.methods.frequencies --model FOLDER --responses FILE.jsonl --out FILE.json

The file has the official code's format, {"num_token": .., "p_baseline_dict": {id: count}}, and names the vocabulary's
size. Without --responses it is
made from the generated training problems of the paper's four suites.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from harness.errors import UserError, one_line_errors
from harness.records.store import write_atomically
from harness.suites.exchanges import read_exchanges
from harness.suites.registry import PAPER_SUITES
from harness.suites.responses import generated_exchanges

EXAMPLES = 2000  # generated ones of every suite


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="nano, a folder or a hub id: whose tokenizer")
    parser.add_argument("--responses", type=Path, help="JSONL of prompts and responses (default: generated problems)")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(line)
    if asked.out.exists():
        raise UserError(f"{asked.out} exists; choose another --out")

    from model_wrappers import load_backbone  # torch, which --help need not wait for

    backbone = load_backbone(asked.model)
    tokenizer = backbone.text_tokenizer()
    if asked.responses is None:
        exchanges = [each for suite in PAPER_SUITES for each in generated_exchanges(suite, EXAMPLES)]
    else:
        exchanges = read_exchanges(asked.responses, "--responses", None, None)
    counts: Counter[int] = Counter()
    for exchange in exchanges:
        counts.update(tokenizer(exchange.response, add_special_tokens=False).input_ids)
    content = {
        "num_token": counts.total(),
        "vocab_size": backbone.vocab_size,
        "p_baseline_dict": {str(token): counts[token] for token in sorted(counts)},
    }
    write_atomically(asked.out, json.dumps(content) + "\n")
    print(f"{asked.out}: {counts.total()} tokens of {len(exchanges)} responses, {len(counts)} different ones")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
