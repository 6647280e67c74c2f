"""Names that stand for several elements of --methods: the rows of the paper's tables, and every decoder.

Light, because the tables read it too. The presets among them are in harness/methods/presets.py.
"""

GROUPS = {
    "main": ["llada", "llada/2", "ssd", "ddosp", "dcd", "fef-2", "fef-4"],
    "training": [
        *("llada", "llada-trained", "llada-control"),
        *("fef-2-untrained", "fef-4-untrained", "fef-2", "fef-4"),
    ],
    "speculation": ["llada", "fef-2-nosd", "fef-4-nosd", "fef-2", "fef-4"],
    "draft": ["llada", "fef-4", "fef-4-untrained-draft"],
    "window-size": [
        "llada",
        *(f"fef-4(window={n})" for n in (2, 4, 8)),
        "fef-4",
        "fef-4(window=24)",
        "fef-4(window=32)",
    ],
    "savings": [
        *("llada", "fef-2", "fef-2(skip_root_row=true)", "fef-2(reuse_drafts=true)", "fef-2(adaptive_window=true)"),
        *("fef-fast", "fef-two-stream"),
    ],
    "anchor": ["llada", "fef-two-stream", *(f"fef-two-stream(anchor={n})" for n in (32, 24, 16, 8))],
    "front": [
        *("llada", "llada/2", "llada/4", "llada/8"),
        *("threshold(tau=0.5)", "threshold(tau=0.7)", "threshold(tau=0.8)", "threshold", "threshold(tau=0.95)"),
        *("factor(f=4.0)", "factor(f=2.0)", "factor", "factor(f=0.5)", "factor(f=0.25)"),
        *("entropy(gamma=3.0)", "entropy(gamma=1.0)", "entropy(gamma=0.3)", "entropy", "entropy(gamma=0.01)"),
        *("fef-fast", "fef-two-stream-1", "fef-two-stream", "fef-two-stream(anchor=16)", "fef-two-stream(steps=4)"),
        *(f"fef-two-stream-1(refresh_below={c})" for c in (0.5, 0.7, 0.9)),
        *("klass", "wino", "freedave", "prophet", "pc-sampler", "ssd", "ddosp", "dcd"),
        *(f"{name}+dual" for name in ("llada", "threshold", "factor", "entropy", "klass", "wino")),
    ],
    "decoders": [
        *("llada", "llada/2", "llada/4", "llada/8", "ssd", "ddosp", "dcd"),
        *("threshold", "factor", "entropy", "klass", "wino", "freedave", "pc-sampler", "prophet"),
        *("fef-1", "fef-2", "fef-4"),
    ],
    "blocks": [
        *("llada", "threshold", "factor", "entropy"),
        "block(editing_threshold=0.5,threshold=0.7)",
        "block(editing_threshold=0.9,threshold=0.95)",
        "block(editing_threshold=0.0,threshold=0.5)",
        *("s2d2", "s2d2(acceptance=match)", "fef-1", "fef-2", "fef-two-stream-1"),
    ],
    "caches": [
        f"{name}{cache}"
        for name in ("llada", "threshold", "factor", "entropy", "klass", "wino")
        for cache in ("", "+prefix", "+dual")
    ],
}
