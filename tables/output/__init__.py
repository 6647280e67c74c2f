"""Tables become files: LaTeX, Markdown, PDF."""
