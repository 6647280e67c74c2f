"""One decoder of nano with short responses, to test an installation in OpenCompass."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

small = {"gen_length": 48, "run_cfg": {"num_gpus": 0}}
models = [{**common, **decoders["fef-2"], **small, "abbr": "nano-smoke", "path": "nano-fef"}]
