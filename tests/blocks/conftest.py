"""How many cells of the property matrix were checked, at the end of a run."""


def pytest_terminal_summary(terminalreporter):
    counts = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for key, value in report.user_properties
        if key == "cells"
    ]
    if counts:
        terminalreporter.write_line(f"property matrix: {sum(counts):,} cells in {len(counts)} tests")
