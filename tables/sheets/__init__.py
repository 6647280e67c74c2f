"""Numbers become tables as they will stand: cells, captions, notes. A new table is one file here."""
