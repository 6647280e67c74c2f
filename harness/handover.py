"""OpenCompass's own command with this project's model files: `fef-dllm opencompass --models nano --datasets gsm8k_gen`.

What follows is OpenCompass's; `--config-dir` is set to the folder with our model files (model_wrappers/configs/models),
and OpenCompass's own data sets are found by their names as always. Data lie below COMPASS_DATA_CACHE. Without options
the folder is printed, for `opencompass --config-dir "$(fef-dllm opencompass)" ...` and for configurations of your own.
"""

import sys
from pathlib import Path

from harness.errors import UserError, one_line_errors

CONFIGS = Path(__file__).resolve().parents[1] / "model_wrappers" / "configs"


def main(line: list[str] | None = None) -> int:
    """The command line. Raises UserError for a --config-dir of the user's, with what to do instead."""
    line = sys.argv[1:] if line is None else line
    if not line:
        print(CONFIGS)
        return 0
    if "--config-dir" in line:
        raise UserError("fef-dllm opencompass sets --config-dir; with another one use the command opencompass itself")
    from opencompass.cli.main import main as opencompass

    sys.argv = ["opencompass", *line, "--config-dir", str(CONFIGS)]
    opencompass()
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
