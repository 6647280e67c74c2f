"""The report: pages of records, to be opened in a browser."""
