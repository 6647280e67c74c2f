"""The benchmarks: what each one is, where its problems come from, how they are judged."""
