"""The doctor's reports: terminal text, HTML page, JSON document and Perfetto trace."""
