"""What the heads of a run do: data, findings, table, page."""
