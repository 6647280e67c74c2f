"""Numbers become tables as they will be printed: cells, captions, notes. A new table is one file here."""
